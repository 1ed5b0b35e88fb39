"""What CLDR can write in every locale, drawn at random and written in two."""

import datetime
from collections import Counter
from decimal import Decimal

from babel import Locale, UnknownLocaleError, localedata
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
# Marks of writing direction, which SentencePiece would turn into spaces.
_DIRECTION_MARKS = dict.fromkeys((0x061C, 0x200E, 0x200F))


class PhraseKinds:
    """Draws phrases and writes them in a source and in a target locale.

    A name enters only if both locales have it and no other name of its kind
    is written alike in the source locale, so that each phrase has one answer.

    Args:
        source_locale: Locale to translate from, such as `"en"` or `"pt_BR"`.
        target_locale: Locale to translate into.

    Raises:
        ValueError: If a locale is unknown, or if both are the same.
    """

    def __init__(self, source_locale: str, target_locale: str):
        self._locales = (
            _locale("source_locale", source_locale),
            _locale("target_locale", target_locale),
        )
        if self._locales[0] == self._locales[1]:
            raise ValueError(
                "`source_locale` and `target_locale` must differ. Received: "
                f"source_locale={source_locale!r}, target_locale={target_locale!r}."
            )
        self._normalizer = SentencePieceNormalizer(
            rule_name="nmt_nfkc",
            add_dummy_prefix=False,
            escape_whitespaces=False,
            remove_extra_whitespaces=True,
        )
        territories = Locale("en").territories
        countries = {
            code: get_territory_currencies(code, _TODAY, _TODAY)
            for code in sorted(territories)
            if len(code) == 2
        }
        self._countries = self._named(
            [code for code, currencies in countries.items() if currencies],
            lambda code, locale: locale.territories.get(code),
        )
        self._languages = self._named(
            {
                language
                for country in self._countries
                for language in get_official_languages(country, de_facto=True)
            },
            lambda code, locale: locale.languages.get(code),
        )
        currencies = {code for codes in countries.values() for code in codes}
        self._currencies = self._named(
            currencies, lambda code, locale: locale.currencies.get(code)
        )
        self._symbols = self._named(currencies, get_currency_symbol)
        self._units = self._named(
            _UNITS, lambda unit, locale: _unit(Decimal(2), unit, locale)
        )
        self._dialects = [
            locale
            for name in sorted(localedata.locale_identifiers())
            if not (locale := Locale.parse(name)).script
            and not locale.variant
            and locale.language in self._languages
            and locale.territory in self._countries
        ]
        kinds = {
            self._date: 5,
            self._part_of_date: 2,
            self._date_and_time: 3,
            self._date_interval: 2,
            self._time: 1,
            self._time_interval: 2,
            self._relative_time: 2,
            self._duration: 3,
            self._money: 4,
            self._named_money: 5,
            self._measure: 5,
            self._number: 1,
            self._percentage: 1,
            self._country_list: 4,
            self._language_list: 3,
            self._dialect: 1,
        }
        self._kinds, self._weights = list(kinds), list(kinds.values())

    def draw(self, rng) -> tuple[str, str]:
        """Draws one phrase with a `random.Random` and writes it twice."""
        (kind,) = rng.choices(self._kinds, self._weights)
        write = kind(rng)
        return tuple(self._normalize(write(locale)) for locale in self._locales)

    def _normalize(self, text):
        return self._normalizer.normalize(text.translate(_DIRECTION_MARKS))

    def _named(self, codes, name):
        """Returns the codes that both locales name, the source unmistakably."""
        names = [
            {code: name(code, locale) for code in codes} for locale in self._locales
        ]
        uses = Counter(names[0].values())
        return [
            code
            for code in sorted(codes)
            if all(side[code] for side in names) and uses[names[0][code]] == 1
        ]

    # Each method below draws the content of a phrase and returns a function
    # that writes it in a locale.

    def _date(self, rng):
        day, length = _day(rng), rng.choice(["full", "long", "medium"])
        return lambda locale: format_date(day, length, locale)

    def _part_of_date(self, rng):
        day = datetime.datetime.combine(_day(rng), datetime.time())
        skeleton = rng.choice(["yMMMM", "MMMMd", "yMMMEd", "yQQQQ"])
        return lambda locale: format_skeleton(skeleton, day, locale=locale)

    def _date_and_time(self, rng):
        day, time, length = _day(rng), _time(rng), rng.choice(["long", "medium"])

        def write(locale):
            pattern = str(locale.datetime_formats[length]).replace("'", "")
            return pattern.format(
                format_time(time, "short", locale=locale),
                format_date(day, length, locale),
            )

        return write

    def _date_interval(self, rng):
        start = _day(rng)
        end = start + datetime.timedelta(days=rng.randint(1, 27))
        return lambda locale: format_interval(start, end, "yMMMd", locale=locale)

    def _time(self, rng):
        time = _time(rng)
        return lambda locale: format_time(time, "short", locale=locale)

    def _time_interval(self, rng):
        start, end = sorted(rng.sample(range(0, 24 * 60, 5), 2))
        start, end = (datetime.time(*divmod(minutes, 60)) for minutes in (start, end))

        def write(locale):
            twelve_hours = "h" in str(locale.time_formats["short"])
            skeleton = "hm" if twelve_hours else "Hm"
            return format_interval(start, end, skeleton, locale=locale)

        return write

    def _relative_time(self, rng):
        unit, seconds = rng.choice(
            [
                ("minute", 60),
                ("hour", 3600),
                ("day", 86400),
                ("week", 7 * 86400),
                ("month", 30 * 86400),
                ("year", 365 * 86400),
            ]
        )
        count = rng.choice([-1, 1]) * rng.randint(1, 300)
        delta = datetime.timedelta(seconds=count * seconds)
        # Nothing reaches the threshold, so the unit stays as it was drawn.
        return lambda locale: format_timedelta(
            delta, unit, threshold=1e9, add_direction=True, locale=locale
        )

    def _duration(self, rng):
        units = ["year", "month", "week", "day", "hour", "minute", "second"]
        largest = rng.randrange(len(units) - 1)
        parts = [
            (Decimal(rng.randint(1, 60)), f"duration-{unit}")
            for unit in units[largest : largest + rng.randint(2, 3)]
        ]
        return lambda locale: format_list(
            [_unit(number, unit, locale) for number, unit in parts], locale=locale
        )

    def _money(self, rng):
        currency = rng.choice(self._symbols)
        amount = _amount(rng, currency)
        return lambda locale: format_currency(amount, currency, locale=locale)

    def _named_money(self, rng):
        currency = rng.choice(self._currencies)
        amount = _amount(rng, currency)
        return lambda locale: format_currency(
            amount, currency, locale=locale, format_type="name"
        )

    def _measure(self, rng):
        number, unit = _number(rng), rng.choice(self._units)
        return lambda locale: _unit(number, unit, locale)

    def _number(self, rng):
        number = _number(rng)
        return lambda locale: format_decimal(number, locale=locale)

    def _percentage(self, rng):
        number = Decimal(rng.randint(1, 9999)).scaleb(-4)
        return lambda locale: format_percent(
            number, locale=locale, decimal_quantization=False
        )

    def _country_list(self, rng):
        return _list(rng, self._countries, lambda locale: locale.territories)

    def _language_list(self, rng):
        return _list(rng, self._languages, lambda locale: locale.languages)

    def _dialect(self, rng):
        return rng.choice(self._dialects).get_display_name


def _locale(argument, name):
    try:
        return Locale.parse(name.replace("-", "_"))
    except (UnknownLocaleError, ValueError) as error:
        raise ValueError(
            f"`{argument}` must be a locale that CLDR knows, such as 'en' or "
            f"'pt_BR'. Received: {argument}={name!r}."
        ) from error


def _day(rng):
    return datetime.date.fromordinal(rng.randint(_FIRST_DAY, _LAST_DAY))


def _time(rng):
    return datetime.time(rng.randrange(24), rng.randrange(60))


def _number(rng):
    """Draws 1 to 99,999, with a decimal or without, small ones as often."""
    number = Decimal(rng.randint(1, 10 ** rng.randint(1, 5) - 1))
    return number if rng.random() < 0.5 else number + Decimal(rng.randint(1, 9)) / 10


def _amount(rng, currency):
    """Draws an amount of a currency, with all of its decimals."""
    # From 2.00 on: where 1.00 is singular or plural is up to the formatter.
    smallest_units = rng.randint(200, 10 ** rng.randint(3, 7))
    return Decimal(smallest_units).scaleb(-get_currency_precision(currency))


def _list(rng, codes, names):
    items = rng.sample(codes, rng.randint(2, 3))
    style = rng.choice(["standard", "or"])
    return lambda locale: format_list(
        [names(locale)[code] for code in items], style, locale
    )


def _unit(number, unit, locale):
    # Babel writes the unit's code where a locale lacks the longer form that CLDR
    # derives from the shorter one.
    for length in ("long", "short", "narrow"):
        text = format_unit(number, unit, length, locale=locale)
        if unit not in text:
            return text
    return None
