"""CIFAR-10 with a long tail: which loss ranks the images of frequent and rare classes best?"""
