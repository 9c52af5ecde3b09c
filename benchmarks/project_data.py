"""Data that projects want to find, made up: a function each, called by `projects.toml`."""

import json
import pickle
from itertools import islice, product
from pathlib import Path


def images(folder: Path) -> None:
    """A folder of images, of one class."""
    from PIL import Image

    own = folder / "images" / "one"
    own.mkdir(parents=True)
    for number in range(256):
        Image.new("RGB", (300, 300), (number, number, number)).save(own / f"{number}.png")


def autoencoder(folder: Path) -> None:
    """Images, and the autoencoder of Stable Diffusion with random weights, by its published shape
    (Rombach et al. 2022, f = 8)."""
    from diffusers import AutoencoderKL

    images(folder)
    widths, down, up = (128, 256, 512, 512), ("DownEncoderBlock2D",), ("UpDecoderBlock2D",)
    AutoencoderKL(
        block_out_channels=widths, down_block_types=4 * down, up_block_types=4 * up,
        layers_per_block=2, latent_channels=4, sample_size=256,
    ).save_pretrained(folder / "stabilityai" / "sd-vae-ft-ema")  # fmt: skip


def texts(folder: Path) -> None:
    """Parquet files of nanochat, a tokenizer of 32,768 tokens and the bytes of each."""
    import pyarrow
    import tiktoken
    import torch
    from pyarrow import parquet

    own, data = folder / "tokenizer", folder / "base_data_climbmix"
    own.mkdir()
    data.mkdir()
    special = 9  # nanochat/tokenizer.py, SPECIAL_TOKENS
    single = [bytes([value]) for value in range(256)]
    pairs = (one + other for one, other in product(single, single))
    tokens = [*single, *islice(pairs, 32_768 - len(single) - special)]
    names = ("bos", "user_start", "user_end", "assistant_start", "assistant_end", "python_start")
    names += ("python_end", "output_start", "output_end")
    places = {f"<|{name}|>": len(tokens) + place for place, name in enumerate(names)}
    ranks = {token: rank for rank, token in enumerate(tokens)}
    encoding = tiktoken.Encoding("ours", pat_str=".+", mergeable_ranks=ranks, special_tokens=places)
    with (own / "tokenizer.pkl").open("wb") as file:
        pickle.dump(encoding, file)
    lengths = [*map(len, tokens), *([0] * special)]
    torch.save(torch.tensor(lengths, dtype=torch.int32), own / "token_bytes.pt")
    table = pyarrow.table({"text": ["some words of a text " * 400] * 2_048})
    for shard in range(2):
        parquet.write_table(table, data / f"shard_{shard:05d}.parquet", row_group_size=128)


def tokens(folder: Path) -> None:
    """Two million tokens of GPT-2 as llm.c reads them: a header of 256 numbers, then tokens."""
    import numpy as np

    number = 2_000_000
    header = np.zeros(256, dtype=np.int32)
    header[:3] = 20240520, 1, number
    words = np.random.default_rng(0).integers(50_257, size=number, dtype=np.uint16)
    (folder / "tokens.bin").write_bytes(header.tobytes() + words.tobytes())


def diffusion(folder: Path) -> None:
    """Images, and the script that the project's page shows for them."""
    images(folder)
    (folder / "diffusion.py").write_text(f"""
from denoising_diffusion_pytorch import GaussianDiffusion, Trainer, Unet

model = Unet(dim=64, dim_mults=(1, 2, 4, 8), flash_attn=True)
diffusion = GaussianDiffusion(model, image_size=128, timesteps=1000, sampling_timesteps=250)
trainer = Trainer(
    diffusion, {str(folder / "images" / "one")!r}, train_batch_size=32, train_lr=8e-5,
    gradient_accumulate_every=2, amp=True, calculate_fid=False,
)
trainer.train()
""")


def coco(folder: Path) -> None:
    """Images and boxes as COCO has them."""
    from PIL import Image

    (folder / "annotations").mkdir()
    for split in ("train2017", "val2017"):
        (folder / split).mkdir()
        names = {number: f"{number:012d}.jpg" for number in range(64)}
        for name in names.values():
            Image.new("RGB", (640, 480)).save(folder / split / name)
        size = {"width": 640, "height": 480}
        box = {"category_id": 1, "bbox": [9, 9, 50, 60], "area": 3000, "iscrowd": 0}
        whole = {
            "images": [{"id": n, "file_name": name, **size} for n, name in names.items()],
            "annotations": [{"id": n, "image_id": n, "segmentation": [], **box} for n in names],
            "categories": [{"id": 1, "name": "box"}],
        }
        (folder / "annotations" / f"instances_{split}.json").write_text(json.dumps(whole))
