"""Omniglot: which loss finds the images of characters never seen in training?"""
