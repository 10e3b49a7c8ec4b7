"""What households are made of: the furniture and things of rooms, what fits where, what can be done to it.

Type names, fits and affordances are ALFWorld's (alfworld/gen/constants.py, MIT licence, see data/LICENSE),
without the sliced, the worn and the wall-mounted; the furniture of a room follows the counts of the
released training games.
"""

from __future__ import annotations

import dataclasses

TASK_TYPES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)

_SEAT = "BasketBall Book Box CellPhone Cloth CreditCard KeyChain Laptop Newspaper Pillow RemoteControl"
_TABLE = (
    "AlarmClock Apple BaseballBat BasketBall Book Bowl Box Bread ButterKnife CD Candle CellPhone Cloth "
    "CreditCard Cup DishSponge Egg Fork Glassbottle HandTowel Kettle KeyChain Knife Ladle Laptop Lettuce "
    "Mug Newspaper Pan Pen Pencil PepperShaker Plate Pot Potato RemoteControl SaltShaker SoapBar "
    "SoapBottle Spatula Spoon SprayBottle Statue TennisRacket TissueBox ToiletPaper Tomato Vase Watch "
    "WateringCan WineBottle"
)
_DRESSER = (
    "AlarmClock BasketBall Book Bowl Box CD Candle CellPhone Cloth CreditCard Cup Glassbottle KeyChain "
    "Laptop Mug Newspaper Pen Pencil Plate RemoteControl SprayBottle Statue TennisRacket TissueBox "
    "ToiletPaper Vase Watch WateringCan WineBottle"
)

# Receptacle type -> the object types it can hold.
CAN_CONTAIN: dict[str, frozenset[str]] = {
    receptacle: frozenset(objects.split())
    for receptacle, objects in {
        "ArmChair": _SEAT,
        "BathtubBasin": "Cloth DishSponge HandTowel SoapBar",
        "Bed": "BaseballBat BasketBall Book CellPhone Laptop Newspaper Pillow TennisRacket",
        "Cabinet": (
            "Book Bowl Box CD Candle Cloth Cup DishSponge Glassbottle HandTowel Kettle Ladle Mug Newspaper "
            "Pan PepperShaker Plate Plunger Pot SaltShaker SoapBar SoapBottle SprayBottle TissueBox "
            "ToiletPaper Vase WateringCan WineBottle"
        ),
        "Cart": (
            "Candle Cloth DishSponge HandTowel Mug Plunger SoapBar SoapBottle SprayBottle Statue TissueBox "
            "ToiletPaper Vase"
        ),
        "CoffeeMachine": "Mug",
        "CoffeeTable": _TABLE,
        "CounterTop": _TABLE,
        "Desk": _DRESSER + " SoapBottle",
        "DiningTable": _TABLE,
        "Drawer": (
            "Book ButterKnife CD Candle CellPhone Cloth CreditCard DishSponge Fork HandTowel KeyChain "
            "Knife Ladle Newspaper Pen Pencil PepperShaker RemoteControl SaltShaker SoapBar SoapBottle "
            "Spatula Spoon SprayBottle TissueBox ToiletPaper Watch WateringCan"
        ),
        "Dresser": _DRESSER,
        "Fridge": "Apple Bowl Bread Cup Egg Glassbottle Lettuce Mug Pan Plate Pot Potato Tomato WineBottle",
        "GarbageCan": (
            "Apple Bread CD Cloth DishSponge Egg HandTowel Lettuce Newspaper Pen Pencil Potato SoapBar "
            "SoapBottle SprayBottle TissueBox ToiletPaper Tomato WineBottle"
        ),
        "HandTowelHolder": "HandTowel",
        "LaundryHamper": "Cloth",
        "Microwave": "Apple Bowl Bread Cup Egg Glassbottle Mug Plate Potato Tomato",
        "Ottoman": _SEAT,
        "Safe": "CD CellPhone CreditCard KeyChain Statue Vase Watch",
        "Shelf": (
            "AlarmClock Book Bowl Box CD Candle CellPhone Cloth CreditCard Cup DishSponge Glassbottle "
            "HandTowel Kettle KeyChain Mug Newspaper Pen Pencil PepperShaker Plate Pot RemoteControl "
            "SaltShaker SoapBar SoapBottle SprayBottle Statue TissueBox ToiletPaper Vase Watch WateringCan "
            "WineBottle"
        ),
        "SideTable": _TABLE,
        "SinkBasin": (
            "Apple Bowl ButterKnife Cloth Cup DishSponge Egg Fork Glassbottle HandTowel Kettle Knife Ladle "
            "Lettuce Mug Pan Plate Pot Potato SoapBar Spatula Spoon Tomato"
        ),
        "Sofa": _SEAT,
        "StoveBurner": "Kettle Pan Pot",
        "Toaster": "",
        "Toilet": (
            "Candle Cloth DishSponge HandTowel Newspaper SoapBar SoapBottle SprayBottle TissueBox ToiletPaper"
        ),
        "ToiletPaperHanger": "ToiletPaper",
        "TowelHolder": "Towel",
        "TVStand": "TissueBox",
    }.items()
}

OPENABLE = frozenset(("Cabinet", "Drawer", "Fridge", "Microwave", "Safe"))
LAMP_STANDS = frozenset(("Desk", "Dresser", "Shelf", "SideTable"))

# Property of an object, as the PDDL names it -> the object types that have it.
AFFORDANCES: dict[str, frozenset[str]] = {
    name: frozenset(types.split())
    for name, types in {
        "isReceptacleObject": "Bowl Box Cup Mug Pan Plate Pot",
        "heatable": "Apple Bread Cup Egg Mug Plate Potato Tomato",
        "coolable": "Apple Bowl Bread Cup Egg Lettuce Mug Pan Plate Pot Potato Tomato WineBottle",
        "cleanable": (
            "Apple Bowl ButterKnife Cloth Cup DishSponge Egg Fork Kettle Knife Ladle Lettuce Mug Pan Plate "
            "Pot Potato SoapBar Spatula Spoon Tomato"
        ),
        "sliceable": "Apple Bread Egg Lettuce Potato Tomato",
        "toggleable": "DeskLamp FloorLamp",
    }.items()
}

# Task type -> what is done to its object, the property that allows it, the receptacle type that does it and
# the predicate that it makes true.
WORK = {
    "pick_clean_then_place_in_recep": ("clean", "cleanable", "SinkBasin", "isclean"),
    "pick_heat_then_place_in_recep": ("heat", "heatable", "Microwave", "ishot"),
    "pick_cool_then_place_in_recep": ("cool", "coolable", "Fridge", "iscool"),
}


@dataclasses.dataclass(frozen=True)
class Room:
    """One kind of room: `core` furniture is always there, `more` is drawn by weight."""

    core: tuple[str, ...]
    more: dict[str, tuple[float, int]]  # receptacle type -> (weight, most of them in a room)
    objects: tuple[str, ...]
    task_types: tuple[str, ...]


ROOMS = {
    "kitchen": Room(
        core=("Fridge", "Microwave", "SinkBasin", "CounterTop", "Cabinet"),
        more={
            "Cabinet": (14, 20), "Drawer": (5, 9), "StoveBurner": (3, 4), "CounterTop": (2, 3),
            "GarbageCan": (2, 1), "DiningTable": (2, 2), "CoffeeMachine": (2, 1), "Toaster": (1, 1),
            "Shelf": (1, 3), "SideTable": (0.3, 1), "Safe": (0.2, 1),
        },
        objects=tuple(
            "Apple Bowl Bread ButterKnife Cup DishSponge Egg Fork Glassbottle Kettle Knife Ladle "
            "Lettuce Mug Pan PepperShaker Plate Pot Potato SaltShaker SoapBottle Spatula Spoon "
            "Tomato WineBottle Vase Statue".split()
        ),
        task_types=tuple(task for task in TASK_TYPES if task != "look_at_obj_in_light"),
    ),
    "livingroom": Room(
        core=("Sofa", "CoffeeTable", "SideTable", "Drawer"),
        more={
            "Drawer": (5, 9), "SideTable": (2, 3), "ArmChair": (2, 3), "Shelf": (2, 8), "Cabinet": (1.5, 8),
            "GarbageCan": (1.5, 1), "DiningTable": (1, 1), "Dresser": (1, 1), "TVStand": (0.5, 1), 
            "Ottoman": (0.3, 1), "Sofa": (0.3, 1), "Safe": (0.2, 1), "Desk": (0.2, 1),
        },
        objects=tuple(
            "Book Box Candle CellPhone CreditCard KeyChain Laptop Newspaper Pen Pencil Pillow "
            "Plate RemoteControl Statue TissueBox Vase Watch WateringCan".split()
        ),
        task_types=("pick_and_place_simple", "pick_two_obj_and_place", "look_at_obj_in_light"),
    ),
    "bedroom": Room(
        core=("Bed", "Desk", "SideTable", "Drawer"),
        more={
            "Drawer": (6, 12), "Shelf": (3, 8), "GarbageCan": (2, 1), "SideTable": (1, 2), "Dresser": (1, 2),
            "Cabinet": (0.7, 4), "LaundryHamper": (0.5, 1), "ArmChair": (0.5, 2), "Safe": (0.5, 1),
            "Desk": (0.3, 1), "Bed": (0.3, 1),
        },
        objects=tuple(
            "AlarmClock BaseballBat BasketBall Book Bowl Box CD CellPhone Cloth CreditCard "
            "KeyChain Laptop Mug Pen Pencil Pillow RemoteControl Statue TennisRacket TissueBox "
            "Watch".split()
        ),
        task_types=("pick_and_place_simple", "pick_two_obj_and_place", "look_at_obj_in_light"),
    ),
    "bathroom": Room(
        core=("SinkBasin", "Toilet", "CounterTop", "Cabinet"),
        more={
            "Drawer": (5, 9), "Cabinet": (4, 8), "GarbageCan": (2, 1), "ToiletPaperHanger": (2, 1),
            "HandTowelHolder": (2, 2), "TowelHolder": (2, 2), "BathtubBasin": (1.5, 1), "SinkBasin": (1, 1),
            "Shelf": (1, 3), "Cart": (0.4, 1), "SideTable": (0.3, 1), "Dresser": (0.3, 1),
        },
        objects=tuple(
            "Candle Cloth DishSponge HandTowel Plunger SoapBar SoapBottle SprayBottle TissueBox ToiletPaper "
            "Towel".split()
        ),
        task_types=("pick_and_place_simple", "pick_two_obj_and_place", "pick_clean_then_place_in_recep"),
    ),
}  # fmt: skip
