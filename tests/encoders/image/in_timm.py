"""What `test_backbone.py` runs where timm is installed: build, save, load by path, fit, store.

python tests/encoders/image/in_timm.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from attnknn.encoders import encoder_from_settings
from attnknn.encoders.image import ImageEncoder, ImageInference, ImageTraining
from attnknn.errors import InvalidInputError, InvalidSettingError, ModelFolderError
from attnknn.fitting.images import train_images

MODELS = ("test_resnet", "test_vit")
ON_CPU = ImageInference(device="cpu")


def shapes(n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Images with a bright left or right half, in noise."""
    rng = np.random.default_rng(0)
    codes = np.arange(n_rows) % 2
    images = rng.integers(0, 200, (n_rows, 20, 20, 3), dtype=np.uint8)
    for row, code in enumerate(codes):
        images[row, :, code * 10 : code * 10 + 10] += 50
    return images, codes


def message_of(error: type[Exception], encoder: ImageEncoder, X: np.ndarray) -> str:
    try:
        encoder.fit(X)
    except error as found:
        return str(found)
    raise AssertionError(f"{error.__name__} was expected")


def train(encoder: ImageEncoder, X: np.ndarray, codes: np.ndarray) -> list[float]:
    return train_images(
        encoder,
        X,
        codes,
        n_classes=2,
        groups=np.full(len(codes), -1),
        is_trained_on=np.arange(len(codes)) // 2 % 4 != 0,
        random_state=0,
    ).result.validation_losses


def check_model(name: str, folder: Path, X: np.ndarray, codes: np.ndarray) -> None:
    import timm  # not at the top: doctests are looked for where it is missing, too

    torch.manual_seed(1)
    model = timm.create_model(name, num_classes=10)
    path = folder / f"{name}.safetensors"
    save_file(model.state_dict(), path)
    torch.save(model.state_dict(), folder / f"{name}.pt")
    training = ImageTraining.of(
        epochs=3,
        batch_size=16,
        optimizer="adamw",
        learning_rate=3e-3,
        lookahead=0,
        layer_decay=0.8,
        device="cpu",
    )
    settings = {"weights": path, "training": training, "inference": ON_CPU}
    encoder = ImageEncoder(f"timm:{name}", **settings).fit(X)
    bare = timm.create_model(name, num_classes=0)
    bare.load_state_dict(model.state_dict(), strict=False)
    about = timm.data.resolve_model_data_config(bare)
    first = encoder.module_.network.model.state_dict()
    assert all(torch.equal(first[key], value) for key, value in bare.state_dict().items())
    assert torch.allclose(encoder.module_.mean.flatten(), torch.tensor(about["mean"]))
    by_pt = ImageEncoder(f"timm:{name}", **settings | {"weights": folder / f"{name}.pt"}).fit(X)
    assert np.array_equal(by_pt.transform(X), encoder.transform(X))

    depths = encoder.module_.network.layer_depths()
    assert set(depths) == {key for key, _ in encoder.module_.network.named_parameters()}
    assert min(depths.values()) == 0 < max(depths.values())
    start = {key: value.clone() for key, value in encoder.module_.network.state_dict().items()}
    losses = train(encoder, X, codes)
    assert len(set(losses)) > 1

    again = ImageEncoder.from_settings(*encoder.to_settings())
    assert np.array_equal(again.transform(X), encoder.transform(X))

    frozen = ImageEncoder(f"timm:{name}", embed_dim=8, backbone="frozen", **settings).fit(X)
    losses = train(frozen, X, codes)
    assert len(set(losses)) > 1
    kept = frozen.module_.network.state_dict()
    assert all(torch.equal(kept[key], value) for key, value in start.items())
    assert frozen.transform(X).shape == (len(X), 8)

    gray = ImageEncoder(f"timm:{name}", **settings).fit(X[..., 0])
    assert np.isfinite(gray.transform(X[..., 0])).all()


def check_errors(folder: Path, X: np.ndarray) -> None:
    wrong = message_of(InvalidSettingError, ImageEncoder("timm:no_such_model"), X)
    assert "No timm model is called 'no_such_model'" in wrong
    other = ImageEncoder("timm:test_vit", weights=folder / "test_resnet.safetensors")
    assert "do not fit the timm model" in message_of(InvalidInputError, other, X)
    encoder = ImageEncoder("timm:test_vit", weights=folder / "test_vit.pt", inference=ON_CPU).fit(X)
    settings, arrays = encoder.to_settings()
    for network in ("timm:hf-hub:someone/model", "timm:no_such", "timm:local-dir:/etc"):
        settings["settings"]["network"] = network
        try:
            encoder_from_settings(settings, arrays)
        except ModelFolderError:
            continue
        raise AssertionError(f"{network} was taken")


def check_torchvision(folder: Path, X: np.ndarray) -> None:
    """Our ResNets are those of torchvision with another first layer, number for number."""
    from torchvision.models import resnet18, resnet50

    batch = torch.from_numpy(X).permute(0, 3, 1, 2).float()[:4] / 255
    for name, build in (("resnet18-cifar", resnet18), ("resnet50-cifar", resnet50)):
        theirs = build(num_classes=10)
        torch.save(theirs.state_dict(), folder / "photographs.pth")
        ours = ImageEncoder(name, weights=folder / "photographs.pth", inference=ON_CPU).fit(X)
        network = ours.module_.network.eval()
        theirs.conv1, theirs.maxpool = network.conv1, torch.nn.Identity()
        theirs.fc = torch.nn.Identity()
        with torch.inference_mode():
            assert torch.allclose(network(batch), theirs.eval()(batch), atol=1e-5)


def check_trunks(folder: Path, X: np.ndarray) -> None:
    """MobileNetV2 is that of torchvision, EfficientNet-Lite0 that of timm, number for number."""
    import timm
    from torchvision.models import mobilenet_v2

    batch = torch.from_numpy(X).permute(0, 3, 1, 2).float()[:4] / 255
    theirs = mobilenet_v2(num_classes=10)
    torch.save(theirs.state_dict(), folder / "mobilenet.pth")
    settings = {"image_size": 20, "inference": ON_CPU}
    ours = ImageEncoder("mobilenet-v2", weights=folder / "mobilenet.pth", **settings).fit(X)
    theirs.classifier = torch.nn.Identity()
    with torch.inference_mode():
        found = ours.module_.network.eval()(batch)
        assert torch.allclose(found, theirs.eval()(batch), atol=1e-5)
    ours = ImageEncoder("efficientnet-lite0", **settings).fit(X).module_.network.eval()
    theirs = timm.create_model("tf_efficientnet_lite0", num_classes=0).eval()
    in_order = zip(theirs.state_dict(), ours.model.state_dict().values(), strict=True)
    theirs.load_state_dict(dict(in_order))
    with torch.inference_mode():
        assert torch.allclose(ours(batch), theirs(batch), atol=1e-5)


def check_resolution(folder: Path, X: np.ndarray) -> None:
    """Weights of one resolution are used at another."""
    for name in MODELS:
        settings = {"weights": folder / f"{name}.pt", "inference": ON_CPU}
        sizes = [ImageEncoder(f"timm:{name}", image_size=s, **settings) for s in (64, 96)]
        found = [encoder.fit(X).transform(X) for encoder in sizes]
        assert not np.allclose(*found, atol=1e-3)
        again = ImageEncoder.from_settings(*sizes[1].to_settings())
        assert np.array_equal(again.transform(X), found[1])
    wrong = ImageEncoder("timm:test_vit", image_size=50, weights=folder / "test_vit.pt")
    assert "must be a multiple of its patches" in message_of(InvalidSettingError, wrong, X)


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    X, codes = shapes(64)
    check_torchvision(folder, X)
    check_trunks(folder, X)
    for name in MODELS:
        check_model(name, folder, X, codes)
    check_resolution(folder, X)
    check_errors(folder, X)
    sys.stdout.write("all is well\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
