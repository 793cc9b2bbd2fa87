"""How many examples Hypothesis draws for tests whose examples take long."""

from hypothesis import settings


def few(count: int) -> settings:
    """``count`` examples; under ``--hypothesis-profile=search`` as many times more as it asks for.

    The default profile has 100, so ``count`` is a percentage of the profile's number.
    """
    return settings(max_examples=max(1, count * settings().max_examples // 100), deadline=None)
