KEYS = {"cell", "T", "B", "I", "H", "L", "done_rate", "ms", "ms_floor", "ratio", "masked_loop_ratio"}


def test_one_row_per_cell_shape_and_rate(monkeypatch):
    import cores

    monkeypatch.setattr(cores, "LSTM_SHAPES", ((6, 3, 4, 5, 1), (4, 2, 3, 4, 2)))
    monkeypatch.setattr(cores, "GRU_SHAPES", ((6, 3, 4, 5, 1),))
    rows = cores.measure_core(repeats=1)
    assert [(row["cell"], row["T"], row["done_rate"]) for row in rows] == [
        (cell, T, rate)
        for cell, T in (("lstm", 6), ("lstm", 4), ("gru", 6), ("mingru", 6))
        for rate in (0.001, 0.01, 0.1)
    ]
    for row in rows:
        assert set(row) == KEYS
        assert row["ratio"] == row["ms"] / row["ms_floor"] > 0
        assert row["masked_loop_ratio"] > 0
