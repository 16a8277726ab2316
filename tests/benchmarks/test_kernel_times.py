"""Kernels go to the kind of work that they do, and time that two of them share is busy once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kernel_times import Event, busy_us, by_kind, by_name, kind_of, read_trace


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT", "gemm"),
        ("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8>(...)", "gemm"),
        ("void gemv2T_kernel_val<int, int, __nv_bfloat16, __nv_bfloat16, float, 128, 16, 4, 4, false>(...)", "gemm"),
        ("void cublasLt::splitKreduce_kernel<32, 16, int, __nv_bfloat16, true, false>(...)", "gemm"),
        ("_small_linear", "gemm"),
        ("_rotate_and_store", "norm, rotary, store"),
        ("void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>(...)", "norm, rotary, store"),
        ("void flashinfer::sampling::TopPSamplingFromProbKernel<1024u>(...)", "sampling"),
        ("void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float>(...)", "sampling"),
        ("void flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)0, 2u>(...)", "attention"),
        ("void flashinfer::PersistentVariableLengthMergeStatesKernel<8u, 16u>(...)", "attention"),
        ("void cutlass::device_kernel<flash::FlashAttnFwdSm90<CollectiveMainloop, OnlineSoftFwd>>(...)", "attention"),
        ("_decode", "attention"),
        ("_tiles", "attention"),
        ("_merge", "attention"),
        ("_scan_blocks", "sampling"),
        ("_pick", "sampling"),
        ("Memcpy HtoD (Pinned -> Device)", "copies"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(...)", "rest"),
    ],
)
def test_the_kind_of_a_kernel(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def test_time_in_which_two_kernels_run_is_busy_once() -> None:
    events = [Event("a", 0, 10), Event("b", 5, 8), Event("c", 7, 14), Event("d", 20, 21)]
    assert busy_us(events) == 15


def test_counts_and_times_by_kind_and_by_name() -> None:
    events = [Event("gemm_x", 0, 10), Event("decode_kernel", 10, 13), Event("gemm_x", 13, 24)]
    assert by_kind(events)["gemm"] == (2, 21)
    assert by_kind(events)["attention"] == (1, 3)
    assert by_kind(events)["rest"] == (0, 0)
    assert by_name(events) == [("gemm_x", 2, 21), ("decode_kernel", 1, 3)]


def test_a_trace_of_a_gpu_is_its_kernels_and_copies_in_order(tmp_path: Path) -> None:
    raw = [
        {"cat": "kernel", "name": "second", "ts": 5, "dur": 2},
        {"cat": "gpu_memcpy", "name": "first", "ts": 1, "dur": 1},
        {"cat": "cpu_op", "name": "outer", "ts": 0, "dur": 9},
        {"cat": "cpu_op", "name": "inner", "ts": 1, "dur": 1},
        {"name": "process_name", "ph": "M"},
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": raw}))
    assert [event.name for event in read_trace(path, on_gpu=True)] == ["first", "second"]
    assert [event.name for event in read_trace(path, on_gpu=False)] == ["outer"]
