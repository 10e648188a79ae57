"""detect_platform on fake torch and triton modules: each vendor, each confusion, and devices that nobody knows."""

from types import SimpleNamespace

import pytest
import torch

import solution


class Raises:
    """A vendor's module half-way installed: whatever is asked of it fails, each time in another way."""

    def __getattr__(self, name):
        raise {"get_device_name": RuntimeError, "driver": ImportError}.get(name, AttributeError)(name)


def modules(device_type, name, version="2.7.1", fields=("cuda",), architecture=None, target="cuda"):
    """-> (torch, triton) that answer so; `fields` are what torch.version has set."""
    properties = SimpleNamespace(name=name) if architecture is None else SimpleNamespace(name=name, gcnArchName=architecture)
    backend = SimpleNamespace(get_device_name=lambda device: name, get_device_properties=lambda device: properties)
    every = {"__version__": version, "cuda": None, "hip": None, "git_version": "4c500de90", "debug": False}
    fake = SimpleNamespace(
        **{"__version__": version, "version": SimpleNamespace(**{**every, **dict.fromkeys(fields, "1.0")}), device_type: backend}
    )
    driver = SimpleNamespace(active=SimpleNamespace(get_current_target=lambda: f"GPUTarget(backend={target!r}, arch=80)"))
    return fake, SimpleNamespace(runtime=SimpleNamespace(driver=driver))


def detected(*given, **told):
    device = SimpleNamespace(type=given[0], index=0)
    return solution.detect_platform.__wrapped__(device, *modules(*given, **told))


@pytest.mark.parametrize(
    ("platform", "given", "told", "evidence"),
    [
        ("ascend", ("npu", "Ascend910B3"), dict(fields=()), "device type 'npu'"),
        ("moore", ("musa", "MTT S4000"), dict(fields=("musa",), target="musa"), "device type 'musa'"),
        ("metax", ("cuda", "MetaX C500"), {}, "device name 'metax c500'"),
        ("hygon", ("cuda", "K100_AI"), dict(fields=("hip",), target="hip"), "device name 'k100_ai'"),
        ("tianshu", ("cuda", "Iluvatar BI-V150"), {}, "device name 'iluvatar bi-v150'"),
        ("thead", ("cuda", "PPU-ZW810E"), {}, "device name 'ppu-zw810e'"),
        ("nvidia", ("cuda", "NVIDIA H200"), dict(version="2.11.0+cu130"), "device name 'nvidia h200'"),
        ("nvidia", ("cuda", "Tesla V100-SXM2-16GB"), {}, "device name 'tesla v100-sxm2-16gb'"),
        ("nvidia", ("cuda", "A100-SXM4-80GB"), {}, "device name 'a100-sxm4-80gb'"),  # as older drivers call it
    ],
)
def test_each_vendor_by_its_own_answers(platform, given, told, evidence):
    assert detected(*given, **told) == (platform, evidence)


@pytest.mark.parametrize(
    ("platform", "given", "told", "evidence"),
    [
        ("metax", ("cuda", "Device 0"), dict(version="2.6.0+metax3.0.0"), "torch version '2.6.0+metax3.0.0'"),
        ("metax", ("cuda", "NVIDIA A100"), dict(target="maca"), "Triton target \"gputarget(backend='maca', arch=80)\""),
        ("tianshu", ("cuda", "NVIDIA A100"), dict(version="2.4.1+corex.4.3.0"), "torch version '2.4.1+corex.4.3.0'"),
        ("hygon", ("cuda", "Device 66a1"), dict(fields=("hip",), architecture="gfx936:sramecc+"), "architecture 'gfx936:sramecc+'"),
        ("hygon", ("cuda", "Device 66a1"), dict(version="2.5.1+das.opt1.dtk25041"), "torch version '2.5.1+das.opt1.dtk25041'"),
        ("moore", ("cuda", "GPU 0"), dict(fields=("musa", "cuda")), "torch.version '__version__ cuda git_version musa'"),
        ("thead", ("cuda", "T-Head accelerator"), {}, "device name 't-head accelerator'"),
    ],
)
def test_vendors_that_say_cuda_or_bear_another_name(platform, given, told, evidence):
    assert detected(*given, **told) == (platform, evidence)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("cuda", "AMD Instinct MI300X"), dict(fields=("hip",), architecture="gfx942:sramecc+:xnack-", target="hip")),
        (("cuda", "Radeon VII"), dict(fields=("hip",), architecture="gfx906", target="hip")),
        (("xpu", "Intel Data Center GPU Max 1550"), dict(fields=("xpu",), target="xpu")),
        (("cuda", "Some Accelerator"), {}),
    ],
)
def test_an_unknown_device_takes_the_portable_route_and_says_so(given, told):
    platform, evidence = detected(*given, **told)
    assert platform == "portable" and evidence.startswith("no probe knows device type ") and given[1].lower() in evidence


def test_nothing_that_is_asked_may_raise():
    device = SimpleNamespace(type="cuda", index=0)
    assert solution.detect_platform.__wrapped__(device, Raises(), Raises()) == ("portable", "no probe knows device type 'cuda'")
    named, _ = modules("cuda", "PPU-ZW810E")
    assert solution.detect_platform.__wrapped__(device, named, Raises())[0] == "thead"


def test_a_probe_names_a_row_of_the_table():
    assert {platform for platform, _ in solution.PROBES} | {"portable"} <= set(solution.ROUTES)


def test_a_device_is_asked_when_it_is_used_and_once(monkeypatch):
    asked = []
    monkeypatch.setattr(solution, "SOURCES", (("device name", lambda *given: asked.append(given) or "PPU-ZW810E"),))
    solution.detect_platform.cache_clear()
    device = torch.device("cuda", 7)
    assert [solution.detect_platform(device)[0] for _ in range(2)] == ["thead", "thead"] and len(asked) == 1
    solution.detect_platform.cache_clear()
