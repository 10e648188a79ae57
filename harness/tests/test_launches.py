"""What is listed of a call: kernels however they are launched, PyTorch's operators; and the call with no launch."""

from types import SimpleNamespace

import pytest
import torch
import triton
import triton.language as tl

from harness.launches import Watch


@triton.jit
def fill_kernel(x, N: tl.constexpr):
    tl.store(x + tl.arange(0, N), 1.0)


@pytest.fixture
def driver(monkeypatch):
    """A driver with a launcher as Triton's: __init__(source, metadata), __call__ through self.launch."""
    launched = []

    class Launcher:
        def __init__(self, source, metadata):
            self.launch = lambda *arguments: launched.append(arguments)

        def __call__(self, *arguments):
            self.launch(*arguments)

    monkeypatch.setattr(triton.runtime, "driver", SimpleNamespace(active=SimpleNamespace(launcher_cls=Launcher)))
    return SimpleNamespace(launched=launched, launcher=lambda: Launcher(None, SimpleNamespace(name="compress_kernel")))


@pytest.mark.parametrize("omit", [False, True])
def test_a_launcher_is_seen_however_it_is_called(driver, omit):
    """By JIT dispatch and compiled.run (the launcher itself), and by its C entry, kept from before."""
    watch = Watch(interpreted=False, omit=omit)
    launcher = driver.launcher()
    kept = launcher.launch
    launcher(0)  # not watched: not listed
    with watch:
        launcher(1)
        kept(2)
    assert watch.kernels == ["compress_kernel", "compress_kernel"]
    assert driver.launched == ([] if omit else [(0,), (1,), (2,)])


def test_released_launchers_are_tritons_own(driver):
    watch = Watch(interpreted=False)
    launcher = driver.launcher()
    own = watch._launchers[0][1]
    watch.release()
    assert launcher.launch is own


@pytest.mark.parametrize("omit", [False, True])
def test_an_interpreted_launch_is_seen_and_left_out(device, monkeypatch, omit):
    if device.type != "cpu":
        pytest.skip("interpreted on a CPU only")
    from triton.runtime import interpreter

    monkeypatch.setattr(interpreter.GridExecutor, "__call__", interpreter.GridExecutor.__call__)  # the hook goes with the test
    watch, x = Watch(interpreted=True, omit=omit), torch.zeros(4)
    with watch:
        fill_kernel[(1,)](x, N=4)
        torch.softmax(torch.empty(4), 0)
    assert watch.kernels == ["fill_kernel"] and watch.compute_operators == ["_softmax"]
    assert x.tolist() == ([0.0] * 4 if omit else [1.0] * 4)


def test_a_compiled_kernel_launched_directly_is_seen(cuda):
    watch, x = Watch(interpreted=False), torch.zeros(4, device=cuda)
    with watch:
        compiled = fill_kernel[(1,)](x, N=4)
        compiled[(1, 1, 1)](x, 4)
    assert watch.kernels == ["fill_kernel", "fill_kernel"]
