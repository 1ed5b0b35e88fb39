"""The kinds of phrases of the built-in task, drawn at random."""

import datetime
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from functools import partial

from babel.dates import (
    TIMEDELTA_UNITS,  # pairs of a unit and its seconds, from the year to the second
    format_date,
    format_interval,
    format_skeleton,
    format_time,
    format_timedelta,
)
from babel.lists import format_list
from babel.numbers import (
    format_currency,
    format_decimal,
    format_percent,
    get_currency_precision,
    get_currency_symbol,
)
from sentencepiece import SentencePieceNormalizer

from keras_transformer.datasets import cldr

_FIRST_DAY = datetime.date(1990, 1, 1).toordinal()
_LAST_DAY = datetime.date(2039, 12, 31).toordinal()

# For `str.translate`: deletes them, where SentencePiece would turn them into spaces.
_DELETE_DIRECTION_MARKS = dict.fromkeys((0x061C, 0x200E, 0x200F))


class PhraseKinds:
    """Draws random phrases and writes each in a source and in a target locale.

    Every source phrase has one translation. A name is used only if both locales have
    it and it names one thing in the source locale: "Tuvalu", both a country and a
    language in English, is not used. Where two forms look alike in the source locale,
    such as "May 3, 2024" in long and in abbreviated form, the translation is the
    longer form. Arguments and errors are as in `locale_phrases`.
    """

    def __init__(
        self,
        source_locale: str,
        target_locale: str,
        kinds: Sequence[str] | None = None,
    ):
        self._source = cldr.parse_locale("source_locale", source_locale)
        self._target = cldr.parse_locale("target_locale", target_locale)
        received = f"source_locale={source_locale!r}, target_locale={target_locale!r}."
        if self._source == self._target:
            raise ValueError(
                f"`source_locale` and `target_locale` must differ. Received: {received}"
            )
        self._normalizer = SentencePieceNormalizer(
            rule_name="nmt_nfkc",
            add_dummy_prefix=False,
            escape_whitespaces=False,
            remove_extra_whitespaces=True,
        )
        countries, languages, currencies = cldr.country_codes()
        named = self._translatable(countries | languages | currencies, cldr.name_of)
        self._countries = [code for code in named if code in countries]
        self._languages = [code for code in named if code in languages]
        self._currencies = [code for code in named if code in currencies]
        self._currencies_with_symbol = self._translatable(
            currencies, get_currency_symbol
        )
        self._units = self._translatable(
            cldr.UNITS, partial(cldr.write_quantity, Decimal(2))
        )
        if min(map(len, (self._countries, self._languages, self._currencies))) < 3:
            raise ValueError(
                "`source_locale` and `target_locale` must both be locales in which "
                "CLDR names countries, languages and currencies. "
                f"Received: {received}"
            )
        weights = {
            "date": (self._date, 6),
            "part_of_date": (self._part_of_date, 2),
            "date_and_time": (self._date_and_time, 3),
            "date_interval": (self._date_interval, 2),
            "time": (self._time, 1),
            "time_interval": (self._time_interval, 2),
            "relative_time": (self._relative_time, 2),
            "duration": (self._duration, 3),
            "money": (self._money, 4),
            "named_money": (self._named_money, 5),
            "quantity": (self._quantity, 5),
            "number": (self._number, 1),
            "percentage": (self._percentage, 1),
            "countries": (partial(_name_list, codes=self._countries), 4),
            "languages": (partial(_name_list, codes=self._languages), 3),
        }
        kinds = tuple(weights) if kinds is None else kinds
        if isinstance(kinds, str) or not kinds or not set(kinds) <= set(weights):
            raise ValueError(
                f"`kinds` must be a list of names among {tuple(weights)}. "
                f"Received: kinds={kinds!r}."
            )
        # In the order above, so that the order of `kinds` does not matter.
        self._weights = dict(weights[name] for name in weights if name in kinds)

    def draw(self, rng) -> tuple[str, str]:
        """Draws a phrase with a `random.Random`; returns it in both locales."""
        kinds, weights = zip(*self._weights.items(), strict=True)
        (kind,) = rng.choices(kinds, weights)
        forms = list(kind(rng))
        source = rng.choice(forms)(locale=self._source)
        longest = next(write for write in forms if write(locale=self._source) == source)
        phrase = source, longest(locale=self._target)
        return tuple(
            self._normalizer.normalize(text.translate(_DELETE_DIRECTION_MARKS))
            for text in phrase
        )

    def _translatable(self, codes, write):
        """Returns the codes with a unique name in the source, and one in the target."""
        names = {code: write(code, self._source) for code in codes}
        uses = Counter(names.values())
        return [
            code
            for code in sorted(codes)
            if names[code] and uses[names[code]] == 1 and write(code, self._target)
        ]

    # Each method below draws the content of a phrase and yields the forms that it can
    # take, longest first: functions of `locale` that write it.

    def _date(self, rng):
        day = _day(rng)
        yield partial(format_date, day, "full")
        yield partial(format_date, day, "long")
        yield partial(format_skeleton, "yMMMEd", day)
        yield partial(format_date, day, "medium")

    def _part_of_date(self, rng):
        day, skeleton = _day(rng), rng.choice(["yMMMM", "MMMMd", "yQQQQ"])
        yield partial(format_skeleton, skeleton, day)

    def _date_and_time(self, rng):
        day, time = _day(rng), _time(rng)
        yield partial(cldr.write_date_and_time, day, time, "long")
        yield partial(cldr.write_date_and_time, day, time, "medium")

    def _date_interval(self, rng):
        start = _day(rng)
        end = start + datetime.timedelta(days=rng.randint(1, 27))
        yield partial(format_interval, start, end, "yMMMd")

    def _time(self, rng):
        yield partial(format_time, _time(rng), "short")

    def _time_interval(self, rng):
        minutes = sorted(rng.sample(range(0, 24 * 60, 5), 2))
        start, end = (datetime.time(*divmod(minute, 60)) for minute in minutes)
        yield partial(cldr.write_time_interval, start, end)

    def _relative_time(self, rng):
        unit, seconds = rng.choice(TIMEDELTA_UNITS[-2::-1])  # not the second
        count = rng.choice([-1, 1]) * rng.randint(1, 365)
        delta = datetime.timedelta(seconds=count * seconds)
        # A threshold above every count, so that Babel keeps the unit.
        yield partial(format_timedelta, delta, unit, threshold=1e9, add_direction=True)

    def _duration(self, rng):
        first = rng.randrange(len(TIMEDELTA_UNITS) - 1)
        quantities = [
            (Decimal(rng.randint(1, 30)), f"duration-{unit}")
            for unit, _ in TIMEDELTA_UNITS[first : first + rng.randint(2, 3)]
        ]
        yield lambda locale: format_list(
            [cldr.write_quantity(number, unit, locale) for number, unit in quantities],
            locale=locale,
        )

    def _money(self, rng):
        currency = rng.choice(self._currencies_with_symbol)
        yield partial(cldr.write_money, _amount(rng, currency), currency)

    def _named_money(self, rng):
        currency = rng.choice(self._currencies)
        amount = _amount(rng, currency)
        yield partial(format_currency, amount, currency, format_type="name")

    def _quantity(self, rng):
        yield partial(cldr.write_quantity, _number(rng), rng.choice(self._units))

    def _number(self, rng):
        yield partial(format_decimal, _number(rng))

    def _percentage(self, rng):
        fraction = Decimal(rng.randint(1, 9999)).scaleb(-4)
        yield partial(format_percent, fraction, decimal_quantization=False)


def _day(rng):
    # At midnight: a skeleton of CLDR needs a time.
    return datetime.datetime.fromordinal(rng.randint(_FIRST_DAY, _LAST_DAY))


def _time(rng):
    return datetime.time(rng.randrange(24), rng.randrange(60))


def _number(rng):
    """Draws 1 to 99,999 or 1.1 to 999.9, every number of digits equally often."""
    if rng.random() < 0.5:
        return Decimal(rng.randint(1, 10 ** rng.randint(1, 5) - 1))
    whole = rng.randint(1, 10 ** rng.randint(1, 3) - 1)
    return whole + Decimal(rng.randint(1, 9)) / 10


def _amount(rng, currency):
    """Draws an amount of money with the currency's number of decimals."""
    # From 2.00 on: 1.00 is singular in some formatters and plural in others.
    smallest_units = rng.randint(200, 10 ** rng.randint(3, 7) - 1)
    return Decimal(smallest_units).scaleb(-get_currency_precision(currency))


def _name_list(rng, codes):
    names = rng.sample(codes, rng.randint(2, 3))
    yield partial(cldr.write_names, names, "standard")
    yield partial(cldr.write_names, names, "or")
