import platform

from holdfast.trainer.process import keep_freed_memory


def test_keeps_freed_memory_where_the_c_library_is_glibc():
    assert keep_freed_memory() == (platform.libc_ver()[0] == "glibc")
