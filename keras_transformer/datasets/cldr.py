"""Dates, money, units and names, written as a locale writes them."""

import datetime
import re
from typing import Literal

from babel import Locale, UnknownLocaleError
from babel.dates import format_date, format_interval, format_time
from babel.languages import get_official_languages
from babel.lists import format_list
from babel.numbers import format_currency, get_territory_currencies
from babel.units import format_unit

# Currencies change; a fixed day keeps the phrases the same from year to year.
_DAY_OF_CURRENCIES = datetime.date(2025, 1, 1)

_UNITS_OF_DIMENSION = {
    "area": "acre hectare square-kilometer square-meter",
    "digital": "gigabyte megabyte",
    "duration": "day hour minute month second week year",
    "electric": "volt",
    "energy": "kilocalorie kilowatt-hour",
    "frequency": "megahertz",
    "length": "centimeter foot inch kilometer light-year meter mile millimeter",
    "mass": "gram kilogram ounce pound",
    "power": "kilowatt watt",
    "speed": "kilometer-per-hour meter-per-second mile-per-hour",
    "temperature": "celsius fahrenheit",
    "volume": "cubic-meter gallon liter milliliter",
}
# CLDR's codes, such as "area-acre".
UNITS = tuple(
    f"{dimension}-{unit}"
    for dimension, units in _UNITS_OF_DIMENSION.items()
    for unit in units.split()
)


def parse_locale(argument: str, name: str) -> Locale:
    """Returns the locale of a name, or raises `ValueError` naming the argument."""
    try:
        return Locale.parse(str(name).replace("-", "_"))
    except (UnknownLocaleError, ValueError) as error:
        raise ValueError(
            f"`{argument}` must be a locale that CLDR knows, such as 'en' or "
            f"'pt_BR'. Received: {argument}={name!r}."
        ) from error


def country_codes() -> tuple[set[str], set[str], set[str]]:
    """Returns the codes of countries, of their languages and of their currencies."""
    countries: set[str] = set()
    languages: set[str] = set()
    currencies: set[str] = set()
    for code in map(str, Locale("en").territories):
        if len(code) != 2:  # a region
            continue
        money = get_territory_currencies(code, _DAY_OF_CURRENCIES, _DAY_OF_CURRENCIES)
        if money:  # only countries have a currency
            countries.add(code)
            languages.update(get_official_languages(code, de_facto=True))
            currencies.update(money)
    return countries, languages, currencies


def name_of(code: str, locale: Locale) -> str | None:
    """Returns the name of a country, language or currency, or None without one."""
    names = (locale.territories, locale.languages, locale.currencies)
    return next((kind[code] for kind in names if code in kind), None)


def write_names(codes, style: Literal["standard", "or"], locale: Locale) -> str:
    """Writes a list of names; `style` is "standard" for "and", "or" for "or"."""
    names = [name_of(code, locale) or code for code in codes]
    return format_list(names, style, locale)


def write_date_and_time(day, time, length: str, locale: Locale) -> str:
    """Writes a date and a time, without the seconds of `format_datetime`."""
    return (
        str(locale.datetime_formats[length])
        .replace("'", "")
        .replace("{0}", format_time(time, "short", locale=locale))
        .replace("{1}", format_date(day, length, locale))
    )


def write_time_interval(start, end, locale: Locale) -> str:
    """Writes from when to when, on the locale's 12-hour or 24-hour clock."""
    skeleton = "Hm" if "H" in str(locale.time_formats["short"]) else "hm"
    return format_interval(start, end, skeleton, locale=locale)


def write_money(amount, currency: str, locale: Locale) -> str:
    """Writes an amount of money with the currency's symbol."""
    money = format_currency(amount, currency, locale=locale)
    # A space where digits touch letters: CLDR's rule, which Babel lacks.
    return re.sub(r"(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])", " ", money)


def write_quantity(number, unit: str, locale: Locale) -> str | None:
    """Writes a number of units in the longest form that the locale has, if any."""
    # Where Babel has no pattern, it writes the unit's code.
    forms = (
        format_unit(number, unit, length, locale=locale)
        for length in ("long", "short", "narrow")
    )
    return next((form for form in forms if unit not in form), None)
