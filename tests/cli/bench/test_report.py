import dataclasses

import pytest

from minisgl.cli.bench.load import Result
from minisgl.cli.bench.report import Clock, lines, summarize, table

GOOD = [
    Result(None, 2.0, first_token_s=1.0, gaps_s=(0.25, 0.75), prompt_tokens=30, cached_tokens=10, output_tokens=3),
    Result(None, 4.0, first_token_s=3.0, gaps_s=(0.5, 0.5), prompt_tokens=10, cached_tokens=10, output_tokens=3),
]
BAD = [Result("HTTP 500: oops", 9.0), Result("HTTP 500: oops", 9.0), Result("cut", 9.0)]


def test_rates_and_times_are_those_of_requests_that_went_well():
    summary = summarize(GOOD + BAD, Clock(wall_s=4.0, cpu_s=1.0))
    assert summary["num_requests"] == 5
    assert summary["num_failed"] == 3
    assert summary["errors"] == {"HTTP 500: oops": 2, "cut": 1}
    assert summary["requests_per_s"] == 0.5
    assert summary["output_tokens_per_s"] == 1.5
    assert summary["total_tokens_per_s"] == 11.5
    assert summary["cached_share"] == 0.5
    assert summary["client_cpu_share"] == 0.25
    assert summary["ttft_ms"] == pytest.approx({"mean": 2000, "p50": 2000, "p90": 2800, "p99": 2980, "max": 3000})
    assert summary["inter_token_ms"]["max"] == 750
    assert summary["per_token_ms"]["mean"] == 500
    assert summary["e2e_ms"]["mean"] == 3000


def test_lateness_is_shown_where_there_was_some():
    late = [dataclasses.replace(GOOD[0], late_s=0.5)]
    assert table(summarize(GOOD, Clock(1.0, 0.1)), "t").row_count == 4
    assert table(summarize(late, Clock(1.0, 0.1)), "t").row_count == 5


def test_a_run_in_which_all_failed_has_no_times_and_still_a_report():
    summary = summarize(BAD, Clock(1.0, 0.1))
    assert summary["ttft_ms"] is None
    assert table(summary, "t").row_count == 4
    assert lines(summary)[-2:] == ["failed 2 times: HTTP 500: oops", "failed 1 times: cut"]
