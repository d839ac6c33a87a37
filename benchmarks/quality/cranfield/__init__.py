"""Text search on the Cranfield collection: heads on frozen embeddings, trained on whole lists or in batches."""
