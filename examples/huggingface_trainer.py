"""Hugging Face Trainer: a small ConvNeXt that finds the eights, trained for average precision.

python examples/huggingface_trainer.py runs/eights 4     # folder, epochs; goes on where the folder ends"""

import sys

from torch.utils.data import DataLoader
from transformers import ConvNextConfig, ConvNextForImageClassification, Trainer, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint

import rankwise as rw
from rankwise.data import load_eights


class RankingTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(pixel_values=inputs["pixel_values"])
        value = self.model.ranking_loss(outputs.logits[:, 0], inputs["labels"])
        return (value, outputs) if return_outputs else value

    def get_train_dataloader(self):
        labels = [row["labels"] for row in self.train_dataset]
        sampler = rw.samplers.BinaryBatchSampler(labels, positives=8, negatives=56)  # each process gets its share
        loader = DataLoader(self.train_dataset, batch_sampler=sampler, collate_fn=self.data_collator)
        loader.set_epoch = sampler.set_epoch  # the trainer says which epoch it is, after a resume too
        return loader


set_seed(0)
data = load_eights(seed=0)
train = [{"pixel_values": x.view(1, 8, 8), "labels": data.train.labels[i]} for i, x in enumerate(data.train.features)]
shape = ConvNextConfig(num_channels=1, patch_size=2, num_stages=2, depths=[1, 1], hidden_sizes=[16, 32], num_labels=1)
model = ConvNextForImageClassification(shape)
model.ranking_loss = rw.losses.AUPRCLoss()  # a part of the model: its memory is saved and loaded with it
folder, epochs = sys.argv[1:] if len(sys.argv) == 3 else sys.exit(__doc__)
options = {"learning_rate": 1e-2, "lr_scheduler_type": "constant", "save_strategy": "epoch", "report_to": "none"}
arguments = TrainingArguments(folder, num_train_epochs=int(epochs), use_cpu=True, **options)
RankingTrainer(model, arguments, train_dataset=train).train(resume_from_checkpoint=get_last_checkpoint(folder))
scores = model(pixel_values=data.test.features.view(-1, 1, 8, 8)).logits[:, 0].detach()
print(rw.evaluate(scores, data.test.labels, ["ap"]).means)
