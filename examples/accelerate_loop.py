"""Accelerate: rank all images for every digit, from samples of the lists; the loss remembers (digit, image) pairs.

python examples/accelerate_loop.py runs/digits 4     # folder, epochs; several processes: accelerate launch or torchrun
"""

import sys
from pathlib import Path

import torch
from accelerate import Accelerator

import rankwise as rw
from rankwise.data import load_digit_retrieval

folder, epochs = sys.argv[1:] if len(sys.argv) == 3 else sys.exit(__doc__)
accelerator = Accelerator(cpu=True)
torch.manual_seed(0)
data = load_digit_retrieval(seed=0)
digits, images = torch.cartesian_prod(torch.arange(10), torch.arange(len(data.train))).T
grades = (data.train.labels[images] == digits).long()  # a list per digit; relevant: the images that show it
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
loss = rw.losses.NDCGLoss(rw.losses.ListStatistics(grades, digits))
sampler = rw.samplers.QueryBatchSampler(grades, digits, queries=5, relevant=4, irrelevant=16, batches=10)
# The sampler gives each process its share and the loss gathers: only model and optimiser are prepared.
network, optimiser = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=3e-3))
accelerator.register_for_checkpointing(loss, sampler)
if Path(folder).is_dir():
    accelerator.load_state(folder)
for _ in range(sampler.epoch, int(epochs)):
    for batch in sampler:
        query, item = digits[batch], images[batch]
        scores = network(data.train.features[item]).gather(1, query[:, None])[:, 0]
        value = loss(scores, grades[batch], query_ids=query, sample_ids=item)
        optimiser.zero_grad()
        accelerator.backward(value)
        optimiser.step()
accelerator.save_state(folder)
found = rw.evaluate(model(data.test.features).T.detach(), data.test.labels == torch.arange(10)[:, None], ["ndcg@10"])
accelerator.print(found.means)
accelerator.end_training()
