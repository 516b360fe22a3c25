"""The closed vocabulary of the demo pictures: colours, shapes, places and words."""

from __future__ import annotations

import hashlib
from typing import Final

COLOURS: Final[dict[str, tuple[tuple[int, int, int], ...]]] = {
    "red": ((220, 30, 35), (255, 0, 0), (200, 20, 30)),
    "orange": ((250, 140, 20), (255, 165, 0)),
    "yellow": ((240, 215, 30), (255, 225, 0), (255, 255, 0)),
    "green": ((40, 160, 60), (0, 128, 0), (0, 200, 60)),
    "blue": ((40, 80, 220), (0, 0, 255), (30, 110, 230)),
    "purple": ((130, 50, 170), (128, 0, 128)),
    "pink": ((245, 125, 185), (255, 105, 180), (250, 150, 190)),
    "black": ((25, 25, 25), (0, 0, 0)),
}
"""Each colour's anchors; a picture draws one and shifts it a little."""
SHAPES: Final[tuple[str, ...]] = ("circle", "square", "triangle", "star", "cross", "ring")
PLACES: Final[tuple[str, ...]] = (
    "top left",
    "top",
    "top right",
    "left",
    "center",
    "right",
    "bottom left",
    "bottom",
    "bottom right",
)
CHARACTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
MAX_CHARACTERS: Final = 6
MAX_ITEMS: Final = 5

_WORDS: Final = """
ACE ACT ADD AGE AIR ANT APPLE ARM ART ASK AUNT BABY BACK BAG BALL BANK BAT BEACH BEAR BED BEE
BELL BIG BIKE BIRD BLUE BOAT BOOK BOOT BOX BOY BREAD BRICK BRUSH BUS BUTTER CAFE CAKE CAMERA CAN
CAP CAR CARD CAT CHAIR CHEESE CITY CLOCK CLOUD COAT COFFEE COLD COW CUP DAD DANCE DAY DEER DESK
DOG DOLL DOOR DOWN DREAM DRUM DUCK EAGLE EAR EARTH EAST EAT EGG END EXIT EYE FACE FALL FAN FARM
FAST FIRE FISH FLAG FLOOR FLOWER FLY FOOD FOOT FORK FOX FROG FRUIT GAME GARDEN GATE GIFT GIRL
GLASS GO GOAT GOLD GOOD GRAPE GRASS HAIR HAND HAPPY HAT HEART HELLO HELP HEN HILL HOME HORSE HOT
HOTEL HOUSE ICE INK ISLAND JAM JAR JET JOB JOY JUICE JUMP KEY KING KITE KNEE LAKE LAMP LEAF LEG
LEMON LIGHT LION LIP LOCK LOVE LUNCH MAP MARKET MILK MIRROR MOM MONEY MOON MOUSE MUSIC NAIL NAME
NEST NET NEW NIGHT NO NOSE NORTH NUT OCEAN OFF OIL OLD ON OPEN ORANGE OVEN OWL PAN PAPER PARK
PEN PENCIL PHONE PIANO PIG PIZZA PLANE PLANT PLATE POST PULL PUSH QUEEN QUICK QUIET RABBIT RADIO
RAIN RED RIVER ROAD ROBOT ROCK ROOF ROOM ROSE RUN SAD SALE SALT SAND SCHOOL SEA SEED SHEEP SHIP
SHIRT SHOE SHOP SKY SLEEP SLOW SMILE SNOW SOAP SOCK SONG SOUP SOUTH SPOON STAR STOP STREET SUGAR
SUMMER SUN SWIM TABLE TAXI TEA TENT TIGER TIME TOP TOWN TOY TRAIN TREE TRUCK UNCLE UP VAN VASE
VOICE WALK WALL WARM WATER WAVE WEST WHALE WHEEL WIN WIND WINTER WOLF WOOD WORD WORLD YEAR
YELLOW YES YOUNG ZEBRA ZERO ZOO
"""
WORDS: Final = tuple(word for word in _WORDS.split() if len(word) <= MAX_CHARACTERS)


def is_held_out(word: str) -> bool:
    """Whether a word is kept out of training (about one word in five, by hash)."""
    return hashlib.sha256(word.encode()).digest()[0] < 51


TRAIN_WORDS: Final = tuple(word for word in WORDS if not is_held_out(word))
HELD_OUT_WORDS: Final = tuple(word for word in WORDS if is_held_out(word))


def with_article(noun_phrase: str) -> str:
    """``red circle`` -> ``a red circle``; ``orange star`` -> ``an orange star``."""
    return f"{'an' if noun_phrase[0] in 'aeiou' else 'a'} {noun_phrase}"
