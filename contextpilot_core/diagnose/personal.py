"""What a system message says of the one who asks: found by pattern, each under a name of its own.

The patterns are for system messages alone: in a document the same words name something else.
"""

from typing import Literal

PersonalKind = Literal["email", "tenant", "turn", "language", "user"]

_CAPITAL = r"[^\W\d_a-z][\w&.'’-]{0,40}"
_BETWEEN = r"(?:(?:&|and|of|de|du|da|di|la|le|van|von|der|den|bin|al|y|e)\ ){0,2}"
_NAME = rf"(?-i:{_CAPITAL}(?:\ {_BETWEEN}{_CAPITAL}){{0,3}}(?<![.'’-]))"  # Anna Schmidt, Acme & Sons, Ana de la Cruz
_VALUE = r"""["'“]?(?:[^\n,;.!?"'”]|\.(?=\S)|(?<=\b\w)\.){1,60}["'”]?"""
_NAMED = rf"(?:\s*[:=]\s*{_VALUE}|(?:\s+(?:is|are|called|named|as))*\s+{_NAME})"
_LANGUAGES = (
    "Arabic Bengali Bulgarian Cantonese Catalan Chinese Croatian Czech Danish Dutch English Estonian Finnish French "
    "German Greek Hebrew Hindi Hungarian Indonesian Italian Japanese Korean Latvian Lithuanian Malay Mandarin "
    "Norwegian Persian Polish Portuguese Romanian Russian Serbian Slovak Slovenian Spanish Swahili Swedish Tamil Thai "
    "Turkish Ukrainian Urdu Vietnamese"
)
_COUNTED = r"(?:turn|message|step|round|exchange|question|request|repl(?:y|ie))s?"

PERSONAL = rf"""
    (?P<email>\b[\w.+-]{{1,64}}@[\w-]{{1,63}}(?:\.[\w-]{{1,63}}){{1,8}})
  | (?P<tenant>
        \b(?:tenant|organi[sz]ation|org|company|workspace|account|team|department|brand)
        (?:[_\ -]?(?:id|name))?\b{_NAMED}
      | \b(?:works?|working)\ for\ (?:the\ )?{_NAME}
      | \b(?:assistant|employee)\ (?:of|for|at)\ (?:the\ )?{_NAME}
      | \bon\ behalf\ of\ (?:the\ )?{_NAME}
    )
  | (?P<turn>
        \b{_COUNTED}\b[^\n\d.]{{0,24}}\d+(?:\ ?(?:/|of)\ ?\d+)?
      | \b\d+(?:st|nd|rd|th)?\ {_COUNTED}\b
    )
  | (?P<language>
        \b(?:language|lang|locale)\b(?:\s+is)?\s*[:=]?\s*["']?[a-z]{{2,3}}(?:[-_][a-z]{{2,4}})?(?![\w-])
      | \b(?-i:{"|".join(_LANGUAGES.split())})\b
    )
  | (?P<user>
        \b(?:user(?:[\ _-]?name)?|customer|client|caller|visitor|name)(?:'s|’s)?(?:\ name)?\b(?!_){_NAMED}
      | \b(?:talk|talking|speak|speaking|chat|chatting)\ (?:to|with)\ {_NAME}
      | \b(?:assist|assisting|help|helping|serve|serving|greet|address)\ {_NAME}
      | \b(?:he|she|him|her|his|hers|mrs?|ms)\b
    )
"""
"""A verbose pattern, read without regard to case, with a group of each kind."""
