"""A tensor scheduler in Python orders the gradients of a job, as `allrail apply` hands it over."""

from __future__ import annotations

from itertools import pairwise

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")
from torch import nn  # noqa: E402

import allrail  # noqa: E402
import allrail.torch as art  # noqa: E402
from allrail.simulation import plugins  # noqa: E402
from allrail.targets import apply_to  # noqa: E402

WIDTHS = (16, 64, 8, 4)
SMALL_FIRST = """\
import allrail

@allrail.tensor_scheduler("small_first", partition="8 KiB")
def small_first(tasks):
    return sorted(tasks, key=lambda task: task.bytes)
"""
GOES = """\
import allrail

@allrail.tensor_scheduler("goes", partition="8 KiB")
def goes(tasks):
    return lambda core: core.ready[0]
"""
UNEVEN = """\
import allrail

@allrail.tensor_scheduler("uneven")
def uneven(tasks):
    tasks[0].partition("1 KiB")
    return tasks
"""


def scenario(policy, **keys):
    layers = [
        {"name": f"layer{at}", "dense": {"inputs": inputs, "outputs": outputs}}
        for at, (inputs, outputs) in enumerate(pairwise(WIDTHS))
    ]
    return {
        "schema_version": 1,
        "fabric": {
            "dimensions": [
                {"kind": "switch", "size": 2, "bandwidth": "10 Gb/s", "latency": "10 us"}
            ]
        },
        "workload": {
            "model": {"layers": layers},
            "batch_per_replica": 8,
            "precision": "fp32",
            "compute": {"device": "a100"},
        },
        "schedule": {"tensor": {"policy": policy, **keys}},
    }


@pytest.fixture(autouse=True)
def _none_is_left():
    yield
    for name in plugins.registered():
        plugins.forget(name)


def loaded(folder, text):
    (folder / "mine.py").write_text(text)
    (name,) = allrail.load_plugin(folder / "mine.py")
    return name


def trained(rank, job):
    """The places under which gradients are registered, and what training leaves; or why not."""
    for name in plugins.registered():  # ranks stay, and files of other tests do not
        plugins.forget(name)
    torch.manual_seed(0)
    layers = [part for pair in pairwise(WIDTHS) for part in (nn.Linear(*pair), nn.Tanh())]
    model = nn.Sequential(*layers)
    try:
        model, optimizer = art.schedule(model, torch.optim.SGD(model.parameters(), lr=0.1), job=job)
        carrier = art._of(model)[0]._carrier
        places, register = {}, carrier.register

        def seen(name, dtype, shape, strides, place, group=None):
            places[name] = place
            return register(name, dtype, shape, strides, place, group)

        carrier.register = seen
        draw = torch.Generator().manual_seed(rank)
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.randn(8, WIDTHS[0], generator=draw)).square().mean().backward()
            optimizer.step()
            art.synchronize(model)
    except allrail.AllrailError as error:
        return None, str(error)
    left = torch.cat([each.detach().flatten() for each in model.parameters()]).double()
    art.release(model)
    return places, left.sum().item()


@pytest.fixture(scope="module")
def train(ranks_of):
    return ranks_of(trained, ranks=2)


def test_gradients_go_in_its_order(tmp_path, train):
    name = loaded(tmp_path, SMALL_FIRST)
    (written,) = apply_to(scenario(name), tmp_path / "job", targets=["allrail"])
    assert {path.name for path in written.files} == {"allrail.yaml", "mine.py"}
    text = (tmp_path / "job" / "allrail.yaml").read_text()
    assert "plugin: mine.py" in text
    assert "partition: 8 KiB" in text
    # Each gradient alone, or a pack would go with its most urgent one.
    alone = text.replace("plugin: mine.py", "plugin: mine.py\n    pack: 0 B")
    (tmp_path / "job" / "allrail.yaml").write_text(alone)
    answers = train(str(tmp_path / "job" / "allrail.yaml"))
    plain = train({"schema_version": 1, "schedule": {"tensor": {"pack": "0 B"}}})
    sizes = {}
    for at, (inputs, outputs) in enumerate(pairwise(WIDTHS)):
        sizes |= {f"{2 * at}.weight": inputs * outputs, f"{2 * at}.bias": outputs}
    for places, left in answers:
        ranked = sorted(sizes, key=lambda name: places[name])
        assert [sizes[name] for name in ranked] == sorted(sizes.values())
        assert left == pytest.approx(plain[0][1], abs=1e-6)
    forward = [plain[0][0][name] for name in sizes]
    assert forward == sorted(forward), "without it, in the order of the forward pass"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("    return tasks[1:]", "it lost 1 of 6 tasks: `0."),
        ("    return 1 / 0", "it raised ZeroDivisionError"),
        ("    return lambda core: None", "it chooses as it goes"),
        ("    tasks[0].partition(64)\n    return tasks", "otherwise than the job"),
    ],
)
def test_what_it_does_wrong_is_told_on_every_rank(tmp_path, train, text, why):
    head = 'import allrail\n\n@allrail.tensor_scheduler("mine")\ndef mine(tasks):\n'
    (tmp_path / "mine.py").write_text(f"{head}{text}\n")
    job = {"schema_version": 1, "schedule": {"tensor": {"policy": "mine", "plugin": "mine.py"}}}
    job["schedule"]["tensor"]["plugin"] = str(tmp_path / "mine.py")
    for places, told in train(job):
        assert places is None
        assert "mine.py:" in told
        assert why in told


def test_what_a_job_cannot_keep_to_is_refused_with_a_line(tmp_path):
    for text, why in ((GOES, "it chooses as it goes"), (UNEVEN, "cuts all gradients alike")):
        name = loaded(tmp_path, text)
        written = apply_to(scenario(name), tmp_path / name)
        (ours,) = (one for one in written if one.target == "allrail")
        assert not ours.files
        assert f"schedule.tensor.policy: {name}" in ours.why
        assert why in ours.why


def test_tictac_s_order_is_carried_where_it_is_the_forward_pass_s(tmp_path):
    (written,) = apply_to(scenario("tac"), tmp_path / "job", targets=["allrail"])
    assert "policy: tac" in (tmp_path / "job" / "allrail.yaml").read_text()
    assert len(written.files) == 1


def test_a_function_of_no_file_is_refused(tmp_path):
    @allrail.tensor_scheduler("here")
    def here(tasks):
        return tasks

    with pytest.raises(allrail.InputError, match="in no file of its own"):
        apply_to(scenario("here"), tmp_path / "job", targets=["allrail"])


def test_a_file_that_registers_another_is_refused(tmp_path):
    (tmp_path / "mine.py").write_text(SMALL_FIRST)
    (tmp_path / "allrail.yaml").write_text(
        "schema_version: 1\nschedule:\n  tensor: {policy: other, plugin: mine.py}\n"
    )
    from allrail.runtime.job import find_job

    with pytest.raises(allrail.InputError, match="registers no tensor scheduler `other`"):
        find_job(tmp_path / "allrail.yaml")
