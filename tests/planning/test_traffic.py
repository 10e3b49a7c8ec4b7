"""Numbers read from the text of programs, by hand."""

import numpy as np
import pytest

from rlanything_jax.planning import hlo
from rlanything_jax.planning.traffic import collectives, hbm_bytes

MESH = {"data": 1, "fsdp": 4, "tensor": 2}
# A loop of 24 runs around a loop whose runs nobody knows; f32[1024] is 4 KiB.
LOOPS = """HloModule m, is_scheduled=true

%cond (p: (s32[], f32[1024])) -> pred[] {
  %limit = s32[]{:T(128)} constant(24)
  %p = (s32[]{:T(128)}, f32[1024]{0:T(1024)}) parameter(0)
  %i = s32[]{:T(128)} get-tuple-element(%p), index=0
  ROOT %lt = pred[]{:T(512)} compare(%i, %limit), direction=LT
}

%inner_cond (p: (s32[], f32[1024])) -> pred[] {
  %p = (s32[]{:T(128)}, f32[1024]{0:T(1024)}) parameter(0)
  %i = s32[]{:T(128)} get-tuple-element(%p), index=0
  ROOT %lt = pred[]{:T(512)} compare(%i, %i), direction=LT
}

%inner (p: (s32[], f32[1024])) -> (s32[], f32[1024]) {
  %p = (s32[]{:T(128)}, f32[1024]{0:T(1024)}) parameter(0)
  %x = f32[1024]{0:T(1024)} get-tuple-element(%p), index=1
  %y = f32[1024]{0:T(1024)} negate(%x)
  ROOT %out = (s32[]{:T(128)}, f32[1024]{0:T(1024)}) tuple(%x, %y)
}

%body (p: (s32[], f32[1024])) -> (s32[], f32[1024]) {
  %p = (s32[]{:T(128)}, f32[1024]{0:T(1024)}) parameter(0)
  %x = f32[1024]{0:T(1024)} get-tuple-element(%p), index=1
  %gather = f32[4096]{0:T(1024)S(1)} all-gather(%x), channel_id=1, replica_groups=[2,4]<=[4,2]T(1,0), dimensions={0}
  %w = (s32[]{:T(128)}, f32[1024]{0:T(1024)}) while(%p), condition=%inner_cond, body=%inner
  ROOT %out = (s32[]{:T(128)}, f32[1024]{0:T(1024)}) tuple(%w)
}

ENTRY %main (a: f32[1024]) -> f32[1024] {
  %a = f32[1024]{0:T(1024)} parameter(0)
  %t = (s32[]{:T(128)}, f32[1024]{0:T(1024)}) tuple(%a)
  %loop = (s32[]{:T(128)}, f32[1024]{0:T(1024)}) while(%t), condition=%cond, body=%body
  ROOT %r = f32[1024]{0:T(1024)} all-reduce(%a), channel_id=2, replica_groups={{0,1},{2,3},{4,5},{6,7}}, to_apply=%add
}
"""


def test_collectives_in_loops_count_as_often_as_the_loops_run() -> None:
    gather, reduce = collectives(hlo.parse(LOOPS), MESH)
    assert (gather.kind, gather.axis, gather.times) == ("all-gather", "fsdp", 24)
    assert gather.moved == 3 / 4 * 4096 * 4  # the other three quarters of the result
    assert gather.group.tolist() == [0, 2, 4, 6]
    assert (reduce.kind, reduce.axis, reduce.times) == ("all-reduce", "tensor", 1)
    assert reduce.moved == 2 * 1 / 2 * 1024 * 4


def test_bytes_leave_out_a_chips_own_memory_and_take_unknown_loops_as_told() -> None:
    outer = 24 * 4096  # the gather reads its operand, its result is on the chip
    inner = 24 * 10 * 2 * 4096
    assert hbm_bytes(hlo.parse(LOOPS), unknown=10) == outer + inner + 2 * 4096


@pytest.mark.parametrize(
    ("groups", "axis", "group"),
    [
        ("replica_groups={{0,1},{2,3},{4,5},{6,7}}", "tensor", [0, 1]),
        ("replica_groups=[4,2]<=[8]", "tensor", [0, 1]),
        ("replica_groups=[2,4]<=[4,2]T(1,0)", "fsdp", [0, 2, 4, 6]),
        ("replica_groups=mesh['a'=4,'b'=2] {'a'}", "fsdp", [0, 2, 4, 6]),
        ("replica_groups=mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'b'}", "fsdp", [0, 2, 4, 6]),
        ("replica_groups=mesh['a'=4,'b'=2] {'a','b'}", "fsdp+tensor", list(range(8))),
        ("replica_groups={{0,2},{1,3},{4,6},{5,7}}", "mixed", [0, 2]),
    ],
)
def test_groups_in_every_form_name_their_axis(groups: str, axis: str, group: list[int]) -> None:
    text = LOOPS.replace("replica_groups={{0,1},{2,3},{4,5},{6,7}}", groups)
    found = collectives(hlo.parse(text), MESH)[1]
    assert (found.axis, found.group.tolist()) == (axis, group)


PIECES = """HloModule m

%start (x: f32[8]) -> f32[32] {
  %x = f32[8]{0} parameter(0)
  ROOT %g.1 = f32[32]{0} all-gather(%x), channel_id=7, replica_groups=[2,4]<=[4,2]T(1,0), frontend_attributes={chain_id="3"}
}

%end (x: f32[8]) -> f32[32] {
  %x = f32[8]{0} parameter(0)
  ROOT %g.2 = f32[32]{0} all-gather(%x), channel_id=7, replica_groups=[2,4]<=[4,2]T(1,0), frontend_attributes={chain_id="3"}
}

%all-reduce-scatter.1 (x: f32[32]) -> f32[8] {
  %x = f32[32]{0} parameter(0)
  %all = f32[32]{0} all-reduce(%x), channel_id=9, replica_groups=[2,4]<=[4,2]T(1,0), to_apply=%add
  ROOT %part = f32[8]{0} dynamic-slice(%all, %x), dynamic_slice_sizes={8}
}

ENTRY %main (a: f32[8]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  %s = f32[32]{0} fusion(%a), kind=kCustom, calls=%start
  %e = f32[32]{0} fusion(%a), kind=kCustom, calls=%end
  ROOT %f = f32[8]{0} fusion(%e), kind=kCustom, calls=%all-reduce-scatter.1
}
"""


def test_an_exchange_in_pieces_counts_once_and_runs_beside_computation() -> None:
    gather, scatter = collectives(hlo.parse(PIECES), MESH)
    assert gather.kind == "all-gather" and gather.hidden
    assert scatter.kind == "reduce-scatter" and not scatter.hidden
    assert scatter.moved == 3 / 4 * 32 * 4


IN_PLACE = """HloModule m

%write (cache: bf16[64,128], at: s32[], row: bf16[1,128]) -> bf16[64,128] {
  %cache = bf16[64,128]{1,0} parameter(0)
  %at = s32[] parameter(1)
  %row = bf16[1,128]{1,0} parameter(2)
  ROOT %new = bf16[64,128]{1,0} dynamic-update-slice(%cache, %row, %at)
}

%layer (stack: bf16[10,64,128], i: s32[]) -> bf16[64,128] {
  %stack = bf16[10,64,128]{2,1,0} parameter(0)
  %i = s32[] parameter(1)
  %one = bf16[1,64,128]{2,1,0} dynamic-slice(%stack, %i), dynamic_slice_sizes={1,64,128}
  ROOT %flat = bf16[64,128]{1,0} bitcast(%one)
}

ENTRY %main (c: bf16[64,128], s: bf16[10,64,128], r: bf16[1,128], i: s32[]) -> bf16[64,128] {
  %c = bf16[64,128]{1,0} parameter(0)
  %s = bf16[10,64,128]{2,1,0} parameter(1)
  %r = bf16[1,128]{1,0} parameter(2)
  %i = s32[] parameter(3)
  %w = bf16[64,128]{1,0} fusion(%c, %i, %r), kind=kLoop, calls=%write
  ROOT %l = bf16[64,128]{1,0} fusion(%s, %i), kind=kLoop, calls=%layer
}
"""


def test_a_cache_that_is_written_into_is_not_copied_and_a_slice_is_all_that_is_read() -> None:
    row, matrix, index = 128 * 2, 64 * 128 * 2, 4
    write = index + row + 2 * row  # what lies around the new row may be read before it is written
    read = matrix + index + matrix
    assert hbm_bytes(hlo.parse(IN_PLACE)) == write + read


def test_the_loop_over_tokens_is_the_one_without_an_end_in_sight() -> None:
    text = LOOPS.replace("condition=%cond, body=%body", "condition=%inner_cond, body=%body")
    module = hlo.parse(text)
    assert hlo.token_loop(module) == "body"
    assert [one.kind for one in collectives(module, MESH, "body")] == ["all-gather"]
    assert np.isclose(collectives(module, MESH, "body")[0].times, 1)
