"""What CLDR can write in every locale, drawn at random and written in two."""

import datetime
import functools
import re
from collections import Counter
from decimal import Decimal

from babel import Locale, UnknownLocaleError
from babel.dates import (
    format_date,
    format_interval,
    format_skeleton,
    format_time,
    format_timedelta,
)
from babel.languages import get_official_languages
from babel.lists import format_list
from babel.numbers import (
    format_currency,
    format_decimal,
    format_percent,
    get_currency_precision,
    get_currency_symbol,
    get_territory_currencies,
)
from babel.units import format_unit
from sentencepiece import SentencePieceNormalizer

# Currencies change; a fixed day keeps the phrases the same from year to year.
_TODAY = datetime.date(2025, 1, 1)
_FIRST_DAY = datetime.date(1990, 1, 1).toordinal()
_LAST_DAY = datetime.date(2039, 12, 31).toordinal()

_UNITS = (
    "area-acre",
    "area-hectare",
    "area-square-kilometer",
    "area-square-meter",
    "digital-gigabyte",
    "digital-megabyte",
    "duration-day",
    "duration-hour",
    "duration-minute",
    "duration-month",
    "duration-second",
    "duration-week",
    "duration-year",
    "electric-volt",
    "energy-kilocalorie",
    "energy-kilowatt-hour",
    "frequency-megahertz",
    "length-centimeter",
    "length-foot",
    "length-inch",
    "length-kilometer",
    "length-light-year",
    "length-meter",
    "length-mile",
    "length-millimeter",
    "mass-gram",
    "mass-kilogram",
    "mass-ounce",
    "mass-pound",
    "power-kilowatt",
    "power-watt",
    "speed-kilometer-per-hour",
    "speed-meter-per-second",
    "speed-mile-per-hour",
    "temperature-celsius",
    "temperature-fahrenheit",
    "volume-cubic-meter",
    "volume-gallon",
    "volume-liter",
    "volume-milliliter",
)
_DURATIONS = ("year", "month", "week", "day", "hour", "minute", "second")
_SECONDS = {
    "minute": 60,
    "hour": 3600,
    "day": 86_400,
    "week": 7 * 86_400,
    "month": 30 * 86_400,
    "year": 365 * 86_400,
}

# Marks of writing direction, which SentencePiece would turn into spaces.
_DIRECTION_MARKS = dict.fromkeys((0x061C, 0x200E, 0x200F))


class PhraseKinds:
    """Draws phrases and writes them in a source and in a target locale.

    Every phrase has one answer. A name enters only if both locales have it
    and the source locale gives it to one thing: "Tuvalu", both a country and a
    language in English, stays out. Where the source locale writes one content
    alike in two ways, such as "May 3, 2024" in full and abbreviated, the fuller
    one is the answer.

    Args:
        source_locale: Locale to translate from, such as `"en"` or `"pt_BR"`.
        target_locale: Locale to translate into.

    Raises:
        ValueError: If a locale is unknown, if both are the same, or if CLDR
            has too few names in them.
    """

    def __init__(self, source_locale: str, target_locale: str):
        self._source = _locale("source_locale", source_locale)
        self._target = _locale("target_locale", target_locale)
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
        countries, languages, currencies = _codes()
        named = self._named(countries | languages | currencies, _name)
        self._countries = [code for code in named if code in countries]
        self._languages = [code for code in named if code in languages]
        self._currencies = [code for code in named if code in currencies]
        self._symbols = self._named(currencies, get_currency_symbol)
        self._units = self._named(
            _UNITS, lambda unit, locale: _measure(Decimal(2), unit, locale)
        )
        if min(map(len, (self._countries, self._languages, self._currencies))) < 3:
            raise ValueError(
                "`source_locale` and `target_locale` must both be locales in which "
                "CLDR names countries, languages and currencies. "
                f"Received: {received}"
            )
        self._weights = {
            self._date: 6,
            self._part_of_date: 2,
            self._date_and_time: 3,
            self._date_interval: 2,
            self._time: 1,
            self._time_interval: 2,
            self._relative_time: 2,
            self._duration: 3,
            self._money: 4,
            self._named_money: 5,
            self._unit: 5,
            self._number: 1,
            self._percentage: 1,
            self._country_list: 4,
            self._language_list: 3,
        }

    def draw(self, rng) -> tuple[str, str]:
        """Draws one phrase with a `random.Random` and writes it twice."""
        kinds, weights = zip(*self._weights.items(), strict=True)
        (kind,) = rng.choices(kinds, weights)
        ways = kind(rng)
        source = rng.choice(ways)(self._source)
        first = next(write for write in ways if write(self._source) == source)
        return self._normalize(source), self._normalize(first(self._target))

    def _normalize(self, text):
        return self._normalizer.normalize(text.translate(_DIRECTION_MARKS))

    def _named(self, codes, name):
        """Returns the codes that both locales name, the source unmistakably."""
        names = {code: name(code, self._source) for code in codes}
        uses = Counter(names.values())
        return [
            code
            for code in sorted(codes)
            if names[code] and uses[names[code]] == 1 and name(code, self._target)
        ]

    # Each method below draws what a phrase says and returns the ways to say it,
    # functions of a locale, the fullest first.

    def _date(self, rng):
        day = _day(rng)
        return [
            lambda locale: format_date(day, "full", locale),
            lambda locale: format_date(day, "long", locale),
            lambda locale: _skeleton(day, "yMMMEd", locale),
            lambda locale: format_date(day, "medium", locale),
        ]

    def _part_of_date(self, rng):
        day, skeleton = _day(rng), rng.choice(["yMMMM", "MMMMd", "yQQQQ"])
        return [lambda locale: _skeleton(day, skeleton, locale)]

    def _date_and_time(self, rng):
        day, time = _day(rng), _time(rng)
        return [
            lambda locale: _date_and_time(day, time, "long", locale),
            lambda locale: _date_and_time(day, time, "medium", locale),
        ]

    def _date_interval(self, rng):
        start = _day(rng)
        end = start + datetime.timedelta(days=rng.randint(1, 27))
        return [lambda locale: format_interval(start, end, "yMMMd", locale=locale)]

    def _time(self, rng):
        time = _time(rng)
        return [lambda locale: format_time(time, "short", locale=locale)]

    def _time_interval(self, rng):
        start, end = sorted(rng.sample(range(0, 24 * 60, 5), 2))
        start, end = (datetime.time(*divmod(minutes, 60)) for minutes in (start, end))

        def write(locale):
            skeleton = "Hm" if "H" in str(locale.time_formats["short"]) else "hm"
            return format_interval(start, end, skeleton, locale=locale)

        return [write]

    def _relative_time(self, rng):
        unit = rng.choice(list(_SECONDS))
        count = rng.choice([-1, 1]) * rng.randint(1, 365)
        delta = datetime.timedelta(seconds=count * _SECONDS[unit])
        # A threshold beyond every count: the unit stays as it was drawn.
        return [
            lambda locale: format_timedelta(
                delta, unit, threshold=1e9, add_direction=True, locale=locale
            )
        ]

    def _duration(self, rng):
        first = rng.randrange(len(_DURATIONS) - 1)
        parts = [
            (Decimal(rng.randint(1, 30)), f"duration-{unit}")
            for unit in _DURATIONS[first : first + rng.randint(2, 3)]
        ]
        return [
            lambda locale: format_list(
                [_measure(number, unit, locale) for number, unit in parts],
                locale=locale,
            )
        ]

    def _money(self, rng):
        currency = rng.choice(self._symbols)
        amount = _amount(rng, currency)
        return [
            lambda locale: _spaced(format_currency(amount, currency, locale=locale))
        ]

    def _named_money(self, rng):
        currency = rng.choice(self._currencies)
        amount = _amount(rng, currency)
        return [
            lambda locale: format_currency(
                amount, currency, locale=locale, format_type="name"
            )
        ]

    def _unit(self, rng):
        number, unit = _number(rng), rng.choice(self._units)
        return [lambda locale: _measure(number, unit, locale)]

    def _number(self, rng):
        number = _number(rng)
        return [lambda locale: format_decimal(number, locale=locale)]

    def _percentage(self, rng):
        share = Decimal(rng.randint(1, 9999)).scaleb(-4)
        return [
            lambda locale: format_percent(
                share, locale=locale, decimal_quantization=False
            )
        ]

    def _country_list(self, rng):
        return _lists(rng, self._countries)

    def _language_list(self, rng):
        return _lists(rng, self._languages)


def _locale(argument, name):
    try:
        return Locale.parse(str(name).replace("-", "_"))
    except (UnknownLocaleError, ValueError) as error:
        raise ValueError(
            f"`{argument}` must be a locale that CLDR knows, such as 'en' or "
            f"'pt_BR'. Received: {argument}={name!r}."
        ) from error


def _codes():
    """Returns the codes of countries, of their languages and their currencies."""
    countries, languages, currencies = set(), set(), set()
    for code in Locale("en").territories:
        # Regions have longer codes, and what is no country has no currency.
        money = get_territory_currencies(code, _TODAY, _TODAY) if len(code) == 2 else ()
        if money:
            countries.add(code)
            languages.update(get_official_languages(code, de_facto=True))
            currencies.update(money)
    return countries, languages, currencies


def _name(code, locale):
    names = (locale.territories, locale.languages, locale.currencies)
    return next((kind[code] for kind in names if code in kind), None)


def _day(rng):
    return datetime.date.fromordinal(rng.randint(_FIRST_DAY, _LAST_DAY))


def _time(rng):
    return datetime.time(rng.randrange(24), rng.randrange(60))


def _number(rng):
    """Draws 1 to 99,999, or 1.1 to 999.9, small ones as often as large ones."""
    if rng.random() < 0.5:
        return Decimal(rng.randint(1, 10 ** rng.randint(1, 5) - 1))
    whole = rng.randint(1, 10 ** rng.randint(1, 3) - 1)
    return whole + Decimal(rng.randint(1, 9)) / 10


def _amount(rng, currency):
    """Draws an amount of a currency, with all of its decimals."""
    # From 2.00 on: 1.00 is singular in some formatters and plural in others.
    smallest_units = rng.randint(200, 10 ** rng.randint(3, 7) - 1)
    return Decimal(smallest_units).scaleb(-get_currency_precision(currency))


def _skeleton(day, skeleton, locale):
    midnight = datetime.datetime.combine(day, datetime.time())
    return format_skeleton(skeleton, midnight, locale=locale)


def _date_and_time(day, time, length, locale):
    # `format_datetime` would write seconds and a time zone.
    return (
        str(locale.datetime_formats[length])
        .replace("'", "")
        .replace("{0}", format_time(time, "short", locale=locale))
        .replace("{1}", format_date(day, length, locale))
    )


def _spaced(money):
    """Parts digits and letters that touch: CLDR's rule, which Babel lacks."""
    return re.sub(r"(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])", " ", money)


def _measure(number, unit, locale):
    """Writes a number of units in the longest form that the locale has."""
    # Where Babel has no pattern, it writes the unit's code.
    forms = (
        format_unit(number, unit, length, locale=locale)
        for length in ("long", "short", "narrow")
    )
    return next((form for form in forms if unit not in form), None)


def _lists(rng, codes):
    items = rng.sample(codes, rng.randint(2, 3))

    def write(style, locale):
        return format_list([_name(code, locale) for code in items], style, locale)

    return [functools.partial(write, style) for style in ("standard", "or")]
