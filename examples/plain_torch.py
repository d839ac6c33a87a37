"""Plain torch: find the eights among scikit-learn's digits, on one process or several; stop and go on.

python examples/plain_torch.py checkpoint.pt 4     # file, epochs; several processes: torchrun --nproc-per-node 2
"""

import os
import sys

import torch
import torch.distributed as dist

import rankwise as rw
from rankwise.data import load_eights

path, epochs = sys.argv[1:] if len(sys.argv) == 3 else sys.exit(__doc__)
several = "RANK" in os.environ  # set by torchrun
if several:
    dist.init_process_group("gloo")
data = load_eights(seed=0)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
loss = rw.losses.AUPRCLoss()  # gathers the batch of all processes by itself: never wrapped
optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
sampler = rw.samplers.BinaryBatchSampler(data.train.labels, positives=8, negatives=56)  # each process gets its share
saved = {"model": model, "loss": loss, "optimiser": optimiser, "sampler": sampler}
if os.path.exists(path):
    for name, state in torch.load(path, weights_only=True).items():
        saved[name].load_state_dict(state)
network = torch.nn.parallel.DistributedDataParallel(model) if several else model
for _ in range(sampler.epoch, int(epochs)):
    for batch in sampler:
        value = loss(network(data.train.features[batch])[:, 0], data.train.labels[batch])
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
if not several or dist.get_rank() == 0:
    torch.save({name: each.state_dict() for name, each in saved.items()}, path)
    print(rw.evaluate(model(data.test.features)[:, 0].detach(), data.test.labels, ["ap"]).means)
if several:
    dist.destroy_process_group()
