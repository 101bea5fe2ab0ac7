"""The process's limit of open files, which is often 1,024 however many the system would allow: a node needs one for each
connection and one for each segment that is in use.
"""

import resource

_ENOUGH = 1 << 20  # where the system sets no limit, or a higher one


def raise_open_files_limit() -> int:
    """Raise the limit as far as an ordinary process may; what it is then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return wanted if soft == resource.RLIM_INFINITY else soft
