"""Lightning: find images of the same digit. The loss is a part of the module, so checkpoints hold its memory.

python examples/lightning_module.py runs/digits 4 1     # folder, epochs, processes; goes on where the folder ends"""

import sys

import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset

import rankwise as rw
from rankwise.data import load_digit_retrieval


class Retrieval(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 16))
        self.loss = rw.losses.EmbeddingLoss(rw.losses.StableAPLoss())  # gathers the batch of all processes by itself

    def on_train_epoch_start(self):
        self.trainer.train_dataloader.batch_sampler.set_epoch(self.current_epoch)  # right after a resume, too

    def training_step(self, batch):
        return self.loss(self.network(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


folder, epochs, processes = sys.argv[1:] if len(sys.argv) == 4 else sys.exit(__doc__)
L.seed_everything(0, verbose=False)
data = load_digit_retrieval(seed=0)
sampler = rw.samplers.ClassBatchSampler(data.train.labels, classes=8, samples_per_class=4)  # shares out by itself, so:
options = {"use_distributed_sampler": False, "accelerator": "cpu", "devices": int(processes), "max_epochs": int(epochs)}
trainer = L.Trainer(callbacks=L.pytorch.callbacks.ModelCheckpoint(folder, save_last=True), logger=False, **options)
loader = DataLoader(TensorDataset(data.train.features, data.train.labels), batch_sampler=sampler)
trainer.fit(Retrieval(), loader, ckpt_path="last")
vectors = trainer.lightning_module.network(data.test.features).detach()
trainer.print(rw.evaluate_retrieval(vectors, data.test.labels, ["map", "recall@1"]).means)
