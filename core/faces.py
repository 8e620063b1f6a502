"""The icon and the colour by which people recognise a persona, a project, a model or a person."""

from typing import TypedDict
from uuid import UUID

from django.db import models
from django.utils.translation import gettext_lazy as _


class FaceIcon(models.TextChoices):
    """Symbols of `static/icons.svg`. Without one, a face shows the first letter of the name."""

    LETTER = "", _("First letter of the name")
    MODEL = "model", _("Spark")
    BOLT = "bolt", _("Bolt")
    STAR = "star", _("Star")
    HEART = "heart", _("Heart")
    LEAF = "leaf", _("Leaf")
    GLOBE = "globe", _("Globe")
    HOME = "home", _("House")
    FLAG = "flag", _("Flag")
    FOLDER = "folder", _("Folder")
    FILE = "file", _("Sheet")
    BOOK = "book", _("Book")
    CAP = "cap", _("Mortarboard")
    SCALES = "scales", _("Scales")
    CHART = "chart", _("Chart")
    FLASK = "flask", _("Flask")
    WRENCH = "wrench", _("Wrench")
    CODE = "code", _("Code")
    WRITE = "write", _("Pen")
    CHAT = "chat", _("Speech")
    MAIL = "mail", _("Letter in an envelope")
    IMAGE = "image", _("Picture")
    PERSONA = "persona", _("Person")
    TASK = "task", _("Tick")
    LOCK = "lock", _("Lock")
    SEARCH = "search", _("Magnifying glass")
    HOURGLASS = "hourglass", _("Hourglass")


class FaceColour(models.TextChoices):
    """Colours of `.face-<value>` (static/css/faces.css). Without one, the id of the row decides."""

    AUTOMATIC = "", _("Automatic")
    RED = "red", _("Red")
    ORANGE = "orange", _("Orange")
    OLIVE = "olive", _("Olive")
    GREEN = "green", _("Green")
    TEAL = "teal", _("Teal")
    BLUE = "blue", _("Blue")
    VIOLET = "violet", _("Violet")
    PINK = "pink", _("Pink")


COLOURS = tuple(value for value in FaceColour.values if value)


FACE = ("icon", "colour")  # the names of the fields


class FaceFields(TypedDict, total=False):
    """The fields of a face that a form or a request may change."""

    icon: str
    colour: str


class WithFace(models.Model):
    """A row with a face."""

    icon = models.CharField(
        max_length=20, choices=FaceIcon, blank=True, default=FaceIcon.LETTER, db_default=FaceIcon.LETTER
    )
    colour = models.CharField(
        max_length=10, choices=FaceColour, blank=True, default=FaceColour.AUTOMATIC, db_default=FaceColour.AUTOMATIC
    )

    class Meta:
        abstract = True

    @property
    def face_name(self) -> str:
        """Return the name whose first letter the face shows."""
        return str(self)

    @property
    def face_letter(self) -> str:
        return next((each for each in self.face_name if each.isalnum()), "?").upper()

    @property
    def face_colour(self) -> str:
        """Return the chosen colour, else the one that the id decides. A new name does not change it."""
        key = self.pk.int if isinstance(self.pk, UUID) else 0
        return self.colour or COLOURS[key % len(COLOURS)]
