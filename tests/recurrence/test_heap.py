import platform

from holdfast.recurrence import keep_freed_memory


def test_it_takes_where_the_c_library_has_it():
    assert keep_freed_memory() == (platform.libc_ver()[0] == "glibc")
