"""Sentences of our own with passages: in other words than these, and altered so that they are not carried."""

from typing import NamedTuple


class Pair(NamedTuple):
    sentence: str
    passage: str


_GIVEN: list[tuple[str, list[str], list[str]]] = [
    (
        "The harbour of Kalm was dredged in 1987 at a cost of 4.2 million crowns. Ships of up to 9 metres "
        "draught can enter it since then. The work was led by the engineer Ida Brandt, and it did not "
        "interrupt the ferry to Soren.",
        [
            "Since the dredging in 1987, ships with a draught of up to 9 metres can use the harbour of Kalm.",
            "Ida Brandt led the work, which cost 4.2 million crowns.",
            "The ferry to Soren was not interrupted by the work.",
        ],
        [
            "Since the dredging in 1978, ships with a draught of up to 9 metres can enter the harbour of Kalm.",
            "The work was led by the engineer Ida Lindqvist.",
            "The work did interrupt the ferry to Soren.",
            "The harbour of Kalm was dredged at a cost of 42 million crowns.",
        ],
    ),
    (
        "A tenant may end the lease with three months' notice. Notice must be given in writing and reaches "
        "the landlord at the office in Elm Street. The deposit is repaid within 30 days unless there is "
        "damage.",
        [
            "The lease can be ended by the tenant with a notice of three months, given in writing.",
            "Unless there is damage, the deposit is repaid within 30 days.",
            "Notice has to reach the landlord at the office in Elm Street.",
        ],
        [
            "The lease can be ended by the tenant with a notice of six months, given in writing.",
            "The deposit is repaid within 60 days unless there is damage.",
            "Notice reaches the landlord at the office in Oak Street.",
            "Notice must not be given in writing.",
        ],
    ),
    (
        "Revenue rose from 120 million euros in 2019 to 150 million euros in 2020. Most of the growth came "
        "from Brazil, where Novatek opened eleven shops. Costs fell because the warehouse in Lyon was closed.",
        [
            "Between 2019 and 2020 revenue rose from 120 to 150 million euros.",
            "Novatek opened 11 shops in Brazil, from where most of the growth came.",
            "The warehouse in Lyon was closed, so costs fell.",
        ],
        [
            "Revenue rose from 150 million euros in 2019 to 120 million euros in 2020.",
            "Novatek opened seven shops in Brazil, from where most of the growth came.",
            "Costs rose because the warehouse in Lyon was closed.",
            "Costs fell because the warehouse in Turin was closed.",
        ],
    ),
    (
        "The vaccine was given to 1,200 volunteers. It did not raise blood pressure, and fewer than 2 % of "
        "them had a fever. Dr. Okafor, who led the study in Lagos, says that a second dose is needed after "
        "28 days.",
        [
            "About 1200 volunteers were given the vaccine, and fewer than 2 % had a fever.",
            "Blood pressure was not raised by the vaccine.",
            "According to Dr. Okafor, who led the study, a second dose is needed after 28 days.",
        ],
        [
            "The vaccine was given to 2,200 volunteers.",
            "The vaccine did raise blood pressure.",
            "Dr. Okafor, who led the study in Nairobi, says that a second dose is needed.",
            "A second dose is needed after 82 days, says Dr. Okafor, who led the study.",
        ],
    ),
    (
        "The museum opens at 9:30 and closes at 18:00, on Thursdays at 21:00. Children under 12 pay nothing. "
        "Photographs are allowed without flash. The collection of Greek vases was a gift of Helena Varga.",
        [
            "On Thursdays the museum closes at 21:00, on other days at 18:00.",
            "For children under 12 nothing has to be paid.",
            "The Greek vases were given by Helena Varga.",
        ],
        [
            "On Thursdays the museum closes at 22:00.",
            "Photographs are not allowed without flash in the museum.",
            "The collection of Roman vases was a gift of Helena Varga.",
            "Children under 16 pay nothing in the museum.",
        ],
    ),
    (
        "The committee rejected the proposal of Mayor Quist by nine votes to four. A new one has to be "
        "handed in before 1 March. The bridge stays open to lorries, but not to trains.",
        [
            "By nine votes to four the committee rejected what Mayor Quist had proposed.",
            "A new proposal must be handed in before 1 March.",
            "Lorries may still use the bridge, trains may not.",
        ],
        [
            "The committee accepted the proposal of Mayor Quist by nine votes to four.",
            "The committee rejected the proposal of Mayor Quist by four votes to nine.",
            "A new proposal has to be handed in after 1 March.",
            "The bridge does not stay open to lorries.",
        ],
    ),
    (
        "Cách dùng: uống 2 viên mỗi ngày sau bữa ăn. Không dùng thuốc cho trẻ em dưới 6 tuổi. Thuốc được sản "
        "xuất tại Đà Nẵng.",
        [
            "Mỗi ngày uống 2 viên sau bữa ăn.",
            "Thuốc không dùng cho trẻ em dưới 6 tuổi.",
            "Thuốc này được sản xuất tại Đà Nẵng.",
        ],
        [
            "Mỗi ngày uống 3 viên sau bữa ăn.",
            "Thuốc dùng cho trẻ em dưới 6 tuổi.",
            "Thuốc được sản xuất tại Hà Nội.",
            "Uống 2 viên mỗi ngày trước bữa ăn.",
        ],
    ),
    (
        "| Month | Orders | Country |\n| --- | --- | --- |\n| January | 310 | Chile |\n| February | 287 | "
        "Peru |\n\nAll orders were shipped within five days. Returns are handled by Parcel House in Antwerp.",
        [
            "In February there were 287 orders, from Peru.",
            "Parcel House in Antwerp handles returns.",
            "All of the orders were shipped within 5 days.",
        ],
        [
            "In February there were 310 orders from Peru.",
            "Returns are handled by Parcel House in Hamburg.",
            "All orders were shipped within nine days.",
            "The orchestra plays a symphony of the young composer tonight.",
        ],
    ),
]

TRUE = [Pair(sentence, passage) for passage, true, _ in _GIVEN for sentence in true]
ALTERED = [Pair(sentence, passage) for passage, _, altered in _GIVEN for sentence in altered]
