"""Networks for images: vectors of length 1, weights from a file, what is frozen stays, mixup multiplies the batch."""

from __future__ import annotations

import copy
import sys
from functools import partial
from urllib.error import URLError

import pytest
import torch

from rankwise.models import ConvEmbedder, ResNetEmbedder

torchvision = pytest.importorskip("torchvision")


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A whole ResNet-18 of torchvision, saved with statistics that are not those of a new one."""
    torch.manual_seed(5)
    network = torchvision.models.resnet18()
    network.train()
    with torch.no_grad():
        network(torch.rand(4, 3, 32, 32))
    path = tmp_path_factory.mktemp("weights") / "resnet18.pt"
    torch.save(network.state_dict(), path)
    return path, network.eval()


@pytest.mark.parametrize("size", [8, 28, 33])
def test_conv_vectors(size):
    model = ConvEmbedder(1, size, 7).eval()
    images = torch.rand(3, 1, size, size)
    vectors = model(images)
    assert vectors.shape == (3, 7)
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(3))
    torch.testing.assert_close(vectors[1:2], model(images[1:2]))
    with pytest.raises(ValueError, match="size: expected a whole number of at least 8, got 7"):
        ConvEmbedder(1, 7, 7)


@pytest.mark.parametrize("channels", [1, 3])
def test_conv_is_its_stages_one_after_the_other(channels):
    """The first normalisation is done to the weights; values, gradients and running statistics are those of doing it
    to the outputs, in training and after it."""
    torch.manual_seed(2)
    quick = ConvEmbedder(channels, 16, 5, normalise=False).double()
    plain = copy.deepcopy(quick)
    with torch.no_grad():
        for model in (quick, plain):
            model.stages[1].weight.copy_(torch.linspace(-1, 2, 32))
            model.stages[1].bias.copy_(torch.linspace(-1, 1, 32))
    for _ in range(2):
        images, direction = torch.rand(6, channels, 16, 16).double(), torch.randn(6, 5).double()
        for model, vectors in ((quick, quick(images)), (plain, plain.last(plain.stages(images)))):
            model.zero_grad()
            (vectors * direction).sum().backward()
        for ours, theirs in zip(quick.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad)
        torch.testing.assert_close(quick.state_dict(), plain.state_dict())
    torch.testing.assert_close(quick.eval()(images), plain.eval().last(plain.stages(images)))


def test_resnet_is_that_of_torchvision_up_to_the_last_layer(weights):
    path, network = weights
    model = ResNetEmbedder(18, 5, weights=path, normalise=False).eval()
    images = torch.rand(2, 3, 64, 48)
    mean, spread = (torch.tensor(v).view(3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    network.fc = torch.nn.Identity()
    torch.testing.assert_close(model(images), model.last(network((images - mean) / spread)))


def test_frozen_batch_norm_is_neither_trained_nor_updated(weights):
    model = ResNetEmbedder(18, 5, weights=weights[0], frozen_batch_norm=True).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1)
    model(torch.rand(4, 3, 32, 32))[:, 0].sum().backward()
    optimiser.step()
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert not {name for name in changed if ".bn" in name or "downsample.1" in name}
    assert {"body.conv1.weight", "last.weight"} <= changed


@pytest.mark.parametrize("frozen", [False, True])
def test_weights_that_are_loaded_later_give_the_same_network(weights, frozen):
    networks = []
    for given in (weights[0], None):
        torch.manual_seed(3)
        networks.append(ResNetEmbedder(18, 5, weights=given, frozen_batch_norm=frozen))
    networks[1].load(weights[0])
    first, second = (network.state_dict() for network in networks)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("build", [partial(ResNetEmbedder, 18, 5), partial(ConvEmbedder, 3, 32, 5)])
def test_mixup_makes_four_of_each_in_training_only(build):
    torch.manual_seed(0)
    model = build(mixup=True).train()
    images, labels = torch.rand(4, 3, 32, 32), torch.tensor([1, 1, 2, 2])
    vectors, more = model.mixed(images, labels)
    assert vectors.shape == (16, 5)
    assert more.tolist() == [1, 1, 2, 2] * 4
    model.eval()
    same, unchanged = model.mixed(images, labels)
    torch.testing.assert_close(same, model(images))
    assert torch.equal(unchanged, labels)
    with pytest.raises(ValueError, match="mixup: expected a network with mixup=True"):
        build().mixed(images, labels)


def test_a_small_stem_keeps_the_resolution_of_small_pictures():
    model = ResNetEmbedder(18, 5, stem="small").eval()
    assert model._begin(torch.rand(1, 3, 32, 32)).shape[-1] == 16
    assert ResNetEmbedder(18, 5).eval()._begin(torch.rand(1, 3, 32, 32)).shape[-1] == 4


def test_fifty_layers():
    assert ResNetEmbedder(50, 6).eval()(torch.rand(1, 3, 40, 40)).shape == (1, 6)


def test_wrong_weights_are_named(weights, tmp_path):
    path, _ = weights
    state = torch.load(path, weights_only=True)
    torch.save({name: value for name, value in state.items() if name != "conv1.weight"}, tmp_path / "lacks.pt")
    torch.save({**state, "head.weight": torch.zeros(1)}, tmp_path / "more.pt")
    torch.save({**state, "conv1.weight": torch.zeros(1)}, tmp_path / "shape.pt")
    torch.save(torch.zeros(3), tmp_path / "tensor.pt")
    (tmp_path / "text.pt").write_text("text")
    for name, message in {
        "lacks.pt": "lacks.pt lacks 'conv1.weight'",
        "more.pt": "more.pt has 'head.weight', which this network has not",
        "shape.pt": "shape.pt does not fit this network",
        "tensor.pt": "tensor.pt: expected a state dict, got a Tensor",
        "text.pt": "text.pt: expected weights saved by torch.save",
        "nothing.pt": "nothing.pt: no such file of weights",
    }.items():
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            ResNetEmbedder(18, 5, weights=tmp_path / name)
    with pytest.raises(ValueError, match=r"does not fit|lacks"):
        ResNetEmbedder(50, 5, weights=path)


def test_no_network_is_said_with_what_to_do(monkeypatch):
    def unreachable(*arguments, **options):
        raise URLError("Name or service not known")

    monkeypatch.setattr(torch.hub, "download_url_to_file", unreachable)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: "/nonexistent/rankwise-test")
    monkeypatch.setattr("os.makedirs", lambda *arguments, **options: None)
    with pytest.raises(ValueError, match=r"weights: expected to download .*resnet18.* which failed .*give its path"):
        ResNetEmbedder(18, 5, weights="imagenet")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"depth": 34}, "depth: expected 18 or 50, got 34"),
        ({"stem": "tiny"}, "stem: unknown word 'tiny'"),
        ({"stem": "small", "weights": "imagenet"}, 'stem: expected "large" with given weights'),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        ResNetEmbedder(**{"depth": 18, "outputs": 5, **options})


def test_without_torchvision_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(ModuleNotFoundError, match=r"ResNet needs torchvision: pip install 'rankwise\[vision\]'"):
        ResNetEmbedder(18, 5)
