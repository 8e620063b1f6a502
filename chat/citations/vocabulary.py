"""Word lists for the comparison of a sentence with a passage: function words, numbers, units, opposites, synonyms.

The English lists are full. Other languages have lists of numbers, units, negations and some opposites; their other
words are compared by their letters and count as content words.
"""

from itertools import product


def _values_of(words: str, first: int = 1, step: int = 1) -> dict[str, float]:
    """Map the words to the values `first`, `first + step`, ..."""
    return {word: float(first + step * index) for index, word in enumerate(words.split())}


def word_set(words: str) -> frozenset[str]:
    """Return the words of a text, which are separated by blanks."""
    return frozenset(words.split())


FUNCTION_WORDS = word_set(
    "a an the this that these those and or but nor so yet if then than as at by for from in into of off on onto out "
    "over per to up upon via with within about above across after against along among amongst around before behind "
    "below beneath beside besides between beyond during under until is are was were be been being am do does did done "
    "doing have has had having will would shall should can could may might must ought i you he she it we they me him "
    "her us them my your his its our their who whom whose which what when where why how there here also however "
    "therefore thus hence moreover furthermore although though while whereas because since according such same other "
    "another any some each every both either neither all more most much many few very just only even still too again "
    "now s t re ve ll d m mr mrs ms dr said says say not no never none without cannot whether toward towards "
    "throughout despite unless except like yes own instead rather quite well already always"
)
# Frequent German words. In a sentence with them, a capital letter does not mark a name.
GERMAN_WORDS = word_set(
    "der die das und ist sind wird werden wurde wurden nicht für von vom mit dem den des ein eine einer einem einen "
    "muss müssen dürfen darf kann können zum zur im am um bei nach aus auf auch sich"
)
# Function words of German and Vietnamese sentences. Some are content words in English: “die”, “war”, “do”.
FUNCTION_WORDS_BY_LANGUAGE = {
    "de": GERMAN_WORDS
    | word_set(
        "als an ab bis durch gegen in ohne oder aber sondern wenn dass da weil damit so wie was wer welche welcher "
        "welches dieser diese dieses diesem diesen jener er sie es ihr ihre ihren ihrem seine sein seinen seinem "
        "seiner man wir ich uns hat haben hatte hatten war waren sei bin worden soll sollen sollte sollten wollen "
        "will kein keine keinen keiner keinem noch nur schon sowie sowohl je pro über unter vor zwischen während "
        "weg her hin dann dort hier dessen deren denen jedoch dabei davon dafür daran darauf zu ins ans beim"
    ),
    "vi": word_set(
        "là của và các những được bị cho với trong trên dưới tại từ đến tới có này đó ấy khi thì mà như để về vào ra "
        "do bởi vì nên cũng đã đang sẽ rất mỗi hoặc hay nhưng nếu sau trước cùng việc sự còn rồi lại nữa theo bằng "
        "thuộc phải gồm không chưa ở một chỉ mới hằng hàng mọi cả lúc xuống lên trở ai gì nào"
    ),
    "fr": word_set(
        "le la les un une des du de à au aux et ou mais donc ni car en dans par pour sur sous avec sans chez vers "
        "entre est sont était étaient être été sera seront a ont avait avoir ayant peut peuvent pouvait doit doivent "
        "il elle ils elles on nous vous je tu lui leur leurs son sa ses mon ma mes notre nos votre vos ce cet cette "
        "ces cela celui celle ceux celles qui que quoi dont où quand comme si ne pas plus non aucun aucune jamais rien "
        "tout toute tous toutes très aussi ainsi même mêmes se s d l qu n c j m t y lors lorsque afin après avant "
        "depuis pendant jusque selon puis alors encore déjà fait quel quelle"
    ),
    "es": word_set(
        "el la los las un una unos unas de del a al y o u e pero sino en con por para sin sobre entre hacia hasta "
        "desde es son era eran ser sido está están fue fueron será ha han había haber puede pueden debe deben se su "
        "sus mi tu le les lo que quien cual cuales cuyo donde cuando como si no ni nunca más muy también este esta "
        "estos estas ese esa eso aquel aquella ya aún todo toda todos todas después antes durante según"
    ),
}
LEAST_FUNCTION_WORDS = 2  # function words from which a sentence counts as German or Vietnamese
# Content words that a sentence may add or leave out without saying something else.
LIGHT_WORDS = word_set(
    "accord account call include contain involve make give get take use provide state name title entitle allow able "
    "describe mention note show be become remain mean serve consist belong possible various certain several number "
    "amount kind type form part example instance term case way thing fact time total together current usual general "
    "specific particular respective approximate rough typical normal main often sometimes usually generally typically "
    "dauern dauert gelten bestehen betragen befinden erfolgen möglich existieren vorhanden besitzen verfügen dienen "
    "enthalten gehören "
    "élève élever correspond correspondre atteindre falloir faut constituer constitue représenter disposer posséder "
    "today year thing one different same new well known so-called particularly especially further additional need"
)
# Nouns that a sentence may add, but not put in the place of another noun.
LIGHT_NOUNS = word_set(
    "passage document text file section table answer source report handbook page clause go goes bear speed length "
    "height width depth weight size age duration date capacity volume distance price rate value level limit area "
    "position location result reason purpose role process method feature aspect option approximately"
)
MONTHS = {
    **_values_of("january february march april may june july august september october november december"),
    **_values_of("jan feb mar apr"),
    **_values_of("jul aug sep oct nov dec", first=7),
    **_values_of("januar februar märz april mai juni juli august september oktober november dezember"),
    **_values_of("janvier février mars avril mai juin juillet août septembre octobre novembre décembre"),
}
NUMBER_WORDS = {
    **MONTHS,
    **_values_of(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
        "seventeen eighteen nineteen twenty",
        first=0,
    ),
    **_values_of("thirty forty fifty sixty seventy eighty ninety", first=30, step=10),
    **_values_of("first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth"),
    **_values_of("fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth twentieth", first=14),
    **_values_of("zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn", first=2),
    **_values_of("zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig", first=20, step=10),
    **_values_of("zweite dritte vierte fünfte sechste siebte achte neunte zehnte", first=2),
    **_values_of(
        "elfte zwölfte dreizehnte vierzehnte fünfzehnte sechzehnte siebzehnte achtzehnte neunzehnte", first=11
    ),
    **_values_of("elften zwölften dreizehnten vierzehnten fünfzehnten sechzehnten siebzehnten achtzehnten", first=11),
    **_values_of("neunzehnten zwanzigsten einundzwanzigsten", first=19),
    **_values_of("zwanzigste einundzwanzigste", first=20),
    **_values_of("zweiten dritten vierten fünften sechsten siebten achten neunten zehnten", first=2),
    **_values_of("deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize", first=2),
    **_values_of("vingt trente quarante cinquante soixante", first=20, step=10),
    **_values_of("dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce quince", first=2),
    **_values_of("hai ba bốn năm sáu bảy tám chín mười", first=2),
    "twice": 2.0,
    "thrice": 3.0,
    "double": 2.0,
    "triple": 3.0,
    "dozen": 12.0,
    "half": 0.5,
    "quarter": 0.25,
}
# Words that are numbers in some contexts only: “may”, “second”, “năm” (five, year).
AMBIGUOUS_NUMBERS = word_set("one first second may mars mar once sept ba năm mai third quarter double twice")
SCALES = {
    **dict.fromkeys(("hundred",), 1e2),
    **dict.fromkeys(("thousand", "k", "nghìn", "ngàn", "tausend", "mille"), 1e3),
    **dict.fromkeys(("million", "millions", "m", "mio", "millionen", "triệu"), 1e6),
    **dict.fromkeys(("billion", "billions", "bn", "tỷ", "milliarden", "milliards"), 1e9),
    "trillion": 1e12,
    **dict.fromkeys(("cent", "cents"), 1e-2),
}
# Parts of a whole in percent, as in “a fifth” and “two thirds”.
PARTS = {
    **dict.fromkeys(("half", "halves"), 50.0),
    **dict.fromkeys(("third", "thirds"), 100 / 3),
    **dict.fromkeys(("quarter", "quarters"), 25.0),
    **dict.fromkeys(("fifth", "fifths"), 20.0),
    **dict.fromkeys(("tenth", "tenths"), 10.0),
}
ONE = word_set("one a an once single ein eine einen einem einer eines un une một")  # words that can mean the number 1
POSSIBLE_NUMBERS = word_set("one single ba")  # words that a number may replace only if it is equal
AMBIGUOUS_MONTHS = word_set("may mar mars mai")  # months only next to a number
NEGATIONS = word_set(
    "not no never none neither nor cannot without nobody nothing nowhere hardly không chưa chẳng nicht kein keine "
    "keinen keiner keinem nie niemals ohne ne pas jamais sans sin nunca nessun non"
)
# Words that express a negation: a sentence with one of them may mean the same as another sentence with “not”.
IMPLICIT_NEGATIONS = word_set(
    "avoid refuse fail lack unable prevent forbid forbidden prohibit ban exclude except excepting unless reject deny "
    "stop cease earliest instead omit skip ignore miss only rare seldom impossible exempt doubt unlike abstain absent "
    "refrain free postpone adjourn defer await pending disable lack lose waive withhold vermeiden vermeidet "
    "verboten untersagt außer nur erst "
    "frühestens cấm tránh chỉ sauf interdit"
)
_OPPOSITES = (
    "up down, increase decrease, increase reduce, increase fall, increase decline, increase drop, rise decline, rise "
    "drop, grow decline, grow fall, gain loss, raise reduce, raise lower, rise fall, rise decrease, higher lower, "
    "high low, more fewer, more less, most least, above below, over under, before after, until after, during before, "
    "earlier later, larger smaller, large small, big small, greater smaller, greater less, longer shorter, long "
    "short, faster slower, fast slow, better worse, best worst, maximum minimum, upper lower, top bottom, always "
    "never, all none, allow forbid, allow prohibit, allow ban, permit prohibit, permit ban, include exclude, with "
    "without, first last, possible impossible, legal illegal, lawful unlawful, lawful illegal, legal unlawful, "
    "positive negative, accept reject, accept refuse, approve reject, adopt reject, succeed fail, success failure, "
    "win lose, buy sell, open close, true false, strong weak, stronger weaker, north south, east west, northern "
    "southern, eastern western, northeast southwest, northwest southwest, northwest southeast, northeast southeast, "
    "northeast northwest, southwest southeast, developed developing, employer employee, lessor lessee, import export, "
    "internal external, domestic foreign, left right, day night, daily nightly, young old, younger older, new old, "
    "newer older, newest oldest, late early, later early, public private, written unwritten, known unknown, voluntary "
    "mandatory, optional mandatory, optional required, profit loss, credit debit, buyer seller, lender borrower, "
    "tenant landlord, teacher student, mother father, son daughter, husband wife, brother sister, male female, man "
    "woman, input output, read write, upload download, enable disable, add remove, expand shrink, grow shrink, rare "
    "common, rarely often, rarely commonly, seldom often, encourage discourage, confirm deny, support oppose, build "
    "demolish, construct demolish, create destroy, arrive depart, begin end, start stop, start end, rich poor, hot "
    "cold, warm cold, wet dry, urban rural, heavy light, deep shallow, thick thin, wide narrow, augmenté diminué, "
    "hausse baisse, avant après, adopté rejeté, tăng giảm, trước sau, cao thấp, steigt sinkt, stieg sank, vor nach, "
    "erlaubt verboten, angenommen abgelehnt, größer kleiner, höher niedriger, mindestens höchstens, least most, "
    "minimum most, maximum least, exceed most, before when, before upon, well poorly, well badly, good bad, good poor, "
    "alone together, automatic manual, automatically manually, surplus deficit, majority minority, full empty, inside "
    "outside, gross net, fixed variable, improve worsen, presence absence, ascend descend, advance retreat, "
    "über unter, mit ohne, innerhalb außerhalb, neu alt, groß klein, lang kurz, schnell langsam, früh spät, warm kalt, "
    "oben unten, links rechts, erste letzte, älteste neueste, ältesten neuesten, älteste jüngste, ältesten jüngsten, "
    "öffnen schließen, kaufen verkaufen, wachsen schrumpfen, gewachsen geschrumpft, öffentlich privat, öffentlichen "
    "privaten, erlauben verbieten, intern extern, eingehend ausgehend, eingehende ausgehende, avec sans, plus moins, "
    "public privé, publics privés, interne externe, premier dernier, première dernière, ouvrir fermer, acheter vendre, "
    "ancien nouveau, grand petit, rapide lent, supérieur inférieur, écrit oral, obligatoire facultatif, "
    "in out, on off, easy difficult, simple complex, simple complicated, simple difficult, one several, one many, one "
    "multiple, single several, single multiple, single many, unless including, popular unpopular, both one, "
    "both neither, also except, even except, including except, "
    "including excluding, sale acquisition, sale purchase, trên dưới, trong ngoài, nhiều ít, lớn nhỏ, nhanh chậm, "
    "đầu cuối, mở đóng, mua bán, guilty innocent, agree disagree, agree object, minimum maximum"
)
# Words for an increase and for a decrease. Each word of one line is an opposite of each word of the other.
_UPWARD = "up increase rise grow gain raise climb higher more improve expand"
_DOWNWARD = "down decrease fall drop decline lose reduce lower less fewer worsen shrink"


def _degrees(word: str) -> list[str]:
    """Return an English adjective of one syllable, its comparative and its superlative."""
    base = word.removesuffix("e")
    if word[-1] == "y":
        base = word[:-1] + "i"
    elif len(word) == SHORT_ADJECTIVE and word[-1] not in "aeiouwxy" and word[-2] in "aeiou":
        base = word + word[-1]
    return [word, base + "er", base + "est"]


SHORT_ADJECTIVE = 3  # letters of an adjective that doubles the last of them, as in “hotter”
_ADJECTIVES = (
    "high low, large small, big small, great small, long short, fast slow, strong weak, young old, new old, early "
    "late, rich poor, hot cold, warm cold, wet dry, heavy light, deep shallow, thick thin, wide narrow, hard soft, "
    "bright dark, loud quiet, safe risky, cheap dear, near far, clean dirty, easy hard, light dark, tall short, broad "
    "narrow"
)
OPPOSITES = [
    *(tuple(pair.split()) for pair in _OPPOSITES.split(", ")),
    *product(_UPWARD.split(), _DOWNWARD.split()),
    *(pair for each in _ADJECTIVES.split(", ") for pair in zip(*map(_degrees, each.split()), strict=True)),
]
# Each line has words that may replace each other in most sentences. Word vectors cover others.
SYNONYMS = [
    frozenset(line.split())
    for line in (
        "begin start commence launch open initiate",
        "end finish terminate conclude cease stop expire close complete",
        "buy purchase acquire obtain",
        "use employ utilize apply operate",
        "make create produce manufacture generate build construct develop form design",
        "found establish create set launch start",
        "need require demand necessitate",
        "show display demonstrate present exhibit indicate reveal illustrate",
        "fund finance pay sponsor",
        "lie locate situate stand sit",
        "downtown center centre middle",
        "average mean",
        "flock throng crowd rush",
        "transmit broadcast send air deliver ship dispatch transfer",
        "leave flee depart quit exit escape",
        "run operate manage administer conduct head lead direct",
        "work operate function run",
        "dispute challenge contest question doubt reject",
        "rise increase grow climb raise gain expand",
        "fall decrease decline drop reduce lower shrink lessen diminish cut",
        "link connect join unite combine attach tie",
        "hurt harm damage injure negative negatively adverse",
        "help assist aid support",
        "end last final",
        "important significant major key crucial essential vital substantial considerable",
        "main primary principal chief leading central",
        "big large great huge vast sizeable major",
        "small little tiny minor",
        "famous known renowned celebrated popular noted prominent",
        "view regard consider see deem",
        "call name term title entitle dub label know",
        "say state claim argue assert declare maintain report explain tell believe",
        "think believe suppose assume consider",
        "choose select pick elect set specify define",
        "break violate breach infringe",
        "france french frenchman",
        "germany german deutschland",
        "england english",
        "netherlands dutch holland",
        "britain british uk kingdom",
        "spain spanish spaniard",
        "switzerland swiss",
        "norway norwegian",
        "denmark danish dane",
        "poland polish",
        "sweden swedish swede",
        "finland finnish finn",
        "turkey turkish turk",
        "greece greek",
        "wales welsh",
        "ireland irish",
        "scotland scottish scot",
        "china chinese",
        "us usa america american states",
        "europe european eu",
        "thailand thai",
        "exist survive remain",
        "observe follow monitor track watch",
        "vanish disappear",
        "inform notify alert warn",
        "last endure persist",
        "pay settle remit",
        "reimburse refund repay return",
        "extend prolong lengthen renew",
        "expire lapse end",
        "liable responsible accountable",
        "entitle right allow",
        "confidential secret",
        "appoint nominate name designate",
        "resign quit leave",
        "retire leave",
        "succeed replace follow",
        "attend present participate",
        "chair head lead preside",
        "approve adopt accept pass endorse",
        "reject decline refuse dismiss",
        "oppose object against disagree",
        "favour favor prefer support",
        "postpone delay defer adjourn put",
        "request ask demand seek",
        "suggest propose recommend advise",
        "report state say announce inform",
        "warn caution",
        "praise commend laud",
        "criticize criticise fault",
        "swallow ingest take",
        "apply put spread administer",
        "prescribe recommend",
        "force cause lead compel prompt make",
        "ceo chief executive",
        "cure heal treat",
        "avoid prevent",
        "symptom sign",
        "effect influence impact consequence",
        "affect influence impact",
        "danger risk hazard threat",
        "trial study test experiment",
        "participant subject volunteer",
        "patient person people",
        "doctor physician medic",
        "surgery operation operate",
        "fridge refrigerator",
        "beat whisk whip",
        "mix blend combine stir mixture",
        "heat warm",
        "chill cool refrigerate",
        "cut slice chop",
        "pan skillet frypan",
        "disable deactivate off switch",
        "enable activate on switch",
        "administrator admin",
        "setting option preference configuration",
        "folder directory",
        "picture photo image",
        "login signin",
        "erase delete remove wipe",
        "save store keep record retain",
        "view see read display show",
        "limit cap restrict maximum",
        "automatic automatically itself",
        "manual manually hand",
        "retry repeat again",
        "fee charge cost price",
        "salary wage pay",
        "staff employee personnel workforce worker",
        "shop store branch outlet",
        "factory plant works",
        "turnover revenue sales",
        "debt loan borrowing",
        "dividend distribution payout",
        "invest investment spend",
        "expect forecast anticipate predict estimate",
        "stable constant unchanged steady same",
        "cheap inexpensive",
        "dear expensive costly",
        "slight slightly marginally",
        "sharp sharply strongly significantly considerably",
        "mainly mostly chiefly primarily largely predominantly",
        "immediately instantly directly promptly",
        "approximately roughly around about circa",
        "initially originally first",
        "eventually finally ultimately",
        "permission consent approval authorization authorisation",
        "condition requirement prerequisite",
        "author writer novelist",
        "sail travel cross",
        "rise start begin originate source",
        "flow run drain",
        "join meet enter merge",
        "rock stone",
        "inhabit live dwell",
        "breed nest reproduce",
        "destroy burn wreck ruin",
        "flood submerge inundate",
        "border adjoin neighbour",
        "famous renowned known",
        "study learn train",
        "teach instruct train",
        "open inaugurate launch",
        "kill slaughter cull",
        "visible seen see",
        "number count amount quantity",
        "keep retain preserve maintain hold store",
        "get receive obtain gain acquire",
        "give provide supply offer grant furnish deliver hand",
        "allow permit let enable authorize",
        "forbid ban prohibit bar outlaw disallow",
        "must obligation duty",
        "lawful legal permitted",
        "illegal unlawful prohibited banned forbidden",
        "buyer purchaser customer",
        "customer client purchaser",
        "supplier vendor provider",
        "employee worker staff",
        "employer company",
        "company firm business enterprise corporation",
        "house home residence dwelling building",
        "town city municipality",
        "country nation state",
        "area region zone territory district",
        "harbour harbor port",
        "ship vessel boat",
        "car automobile vehicle",
        "road street",
        "film movie picture",
        "doctor physician",
        "child kid",
        "man male",
        "woman female",
        "illness disease sickness condition",
        "medicine drug medication",
        "teacher instructor",
        "pupil student",
        "study research investigation examine investigate analysis analyse analyze",
        "job task work",
        "error mistake fault failure",
        "repair fix mend correct",
        "remove delete erase eliminate",
        "add append include contribute",
        "ready finished complete available done",
        "change alter modify amend revise adjust",
        "kill murder slay",
        "die pass perish death",
        "bear born birth",
        "marry wed",
        "win defeat beat overcome",
        "write author compose pen",
        "publish release issue print",
        "read peruse",
        "speak talk communicate converse",
        "hear listen",
        "see watch view observe",
        "ask request inquire query",
        "answer reply respond response",
        "fast quick rapid swift speedy",
        "often frequent common usual regular",
        "rare infrequent seldom uncommon",
        "annual yearly year",
        "daily day",
        "weekly week",
        "monthly month",
        "night nightly",
        "about approximate rough around circa nearly almost",
        "entire whole complete full total all",
        "whole entirety entirely fully completely",
        "former previous prior earlier past formerly previously once",
        "present current now today",
        "later subsequent afterwards following",
        "old ancient",
        "modern contemporary recent",
        "near close adjacent nearby neighbouring",
        "far distant remote",
        "hard difficult tough",
        "easy simple",
        "cost price expense charge fee",
        "pay settle repay refund reimburse",
        "money fund capital",
        "rent lease hire let",
        "contract agreement",
        "cancel terminate rescind annul",
        "notify inform tell advise notice",
        "send mail post dispatch forward submit",
        "hand submit file lodge",
        "law statute act legislation",
        "rule regulation provision",
        "rejected declined refused turned",
        "accept approve adopt agree endorse",
        "propose suggest proposal",
        "vote ballot",
        "decide determine decision resolve rule hold",
        "judge court",
        "part piece portion section share component element",
        "consist comprise contain include compose constitute account",
        "cause lead result produce trigger bring prompt",
        "because due owing",
        "stop prevent halt hinder block",
        "protect guard defend shield safeguard",
        "attack assault",
        "destroy demolish ruin wreck",
        "happen occur take",
        "reach arrive attain hit",
        "enter access join",
        "go proceed travel move head continue",
        "continue last persist remain stay",
        "move relocate transfer shift",
        "carry transport bear convey",
        "hold contain house store accommodate",
        "cover include span extend",
        "divide split separate",
        "gather collect assemble accumulate",
        "distribute spread circulate disseminate",
        "absorb take soak",
        "emit release discharge give send",
        "turn convert transform change become",
        "replace substitute supersede exchange swap",
        "appear emerge show feature",
        "appearance cameo role",
        "invent devise develop create",
        "discover find detect identify",
        "measure gauge",
        "calculate compute",
        "estimate guess judge",
        "compare contrast",
        "belong part member",
        "serve act function",
        "live reside dwell inhabit",
        "resident inhabitant",
        "people person population individual human public",
        "try attempt seek",
        "repeat again retry",
        "achieve accomplish attain reach",
        "improve enhance better upgrade",
        "worsen deteriorate",
        "save store preserve rescue",
        "delay postpone defer",
        "possible feasible",
        "necessary required needed essential",
        "enough sufficient adequate",
        "different distinct separate various diverse",
        "same identical equal",
        "similar alike comparable like",
        "correct right accurate true",
        "wrong false incorrect",
        "special particular specific",
        "notion idea concept hypothesis theory view",
        "kind type sort form variety",
        "way manner method mode means measure",
        "goal aim purpose objective target",
        "place location site spot position",
        "beginning start outset",
        "era period age time",
        "war conflict warfare",
        "soldier troop",
        "king monarch ruler",
        "leader head chief",
        "member part",
        "group team band",
        "moon lunar",
        "sun solar",
        "sea ocean marine",
        "tree wood",
        "rain rainfall precipitation",
        "power energy electricity",
        "engine motor",
        "machine device apparatus",
        "tool instrument",
        "picture image photo photograph",
        "document record file",
        "web website online internet",
        "revenue sales turnover income",
        "profit earnings",
        "optional voluntary facultative elective",
        "mandatory compulsory obligatory required",
        "convert transcode encode transform turn change become transfer",
        "start begin initiate trigger",
        "shrink scale downscale resize reduce",
        "enlarge upscale scale resize extend",
        "suffocate asphyxiate choke smother",
        "smell odor odour scent aroma",
        "notice perceive observe detect",
        "erupt break burst",
        "fire flame blaze",
        "permit license licence",
        "restore reinstate recover return",
        "infringe violate breach fail",
        "comply follow observe obey adhere conform",
        "alone sole solely only exclusively single",
        "boost promote reblog",
        "trash bin recycle",
        "share reshare",
        "narrow restrict limit scope",
        "broad wide",
        "task job assignment",
        "external outside outer",
        "internal inside inner",
        "worldwide global globally world",
        "weak faint",
        "easy easily simple simply effortless",
        "hard hardly barely scarcely",
        "owner proprietor holder",
        "guest visitor",
        "prioritize prioritise priority prefer preference",
        "transfer transmit pass forward hand deliver",
        "hide conceal mask obscure",
        "reveal disclose expose unveil",
        "pause hold interrupt suspend break",
        "resume continue",
        "delay lag hold",
        "rapid rapidly quick quickly fast swift swiftly",
        "slow slowly gradual gradually",
        "full complete entire total whole",
        "empty vacant blank",
        "rule govern control",
        "prove demonstrate confirm verify",
        "verify check confirm validate test examine inspect",
        "inspire prompt motivate evoke cause",
        "essential necessity necessary necessaries",
        "dwelling house home",
        "earn receive get make",
        "lose forfeit",
        "save spare economize",
        "select choose pick",
        "search look seek find",
        "locate find",
        "collect gather receive",
        "contain hold include have comprise",
        "own possess have hold",
        "wait await",
        "ensure guarantee assure secure",
        "handle process treat manage",
        "skip omit exclude ignore",
        "insert add put",
        "fill complete",
        "type enter input key",
        "click press tap hit",
        "display appear show",
        "crash fail break",
        "log record register journal",
        "sign signature",
        "grow increase expand rise",
        "plan schedule intend",
        "aim intend purpose target",
        "cover insure",
        "coverage insurance policy",
        "worth valued value",
        "paid fund finance funded",
        "free gratis complimentary",
        "gather meet assemble",
        "meeting session conference gathering",
        "argue reason claim contend",
        "deny dispute reject",
        "agree consent",
        "describe depict portray",
        "define specify determine set",
        "belief opinion view",
        "fear worry concern",
        "concerned worried anxious afraid",
        "like enjoy love",
        "hate dislike",
        "craftsman craftsmen artisan",
        "merchant trader dealer",
        "farmer grower",
        "native indigenous local",
        "remnant remains rest left remain",
        "ancestor forefather",
        "descendant offspring",
        "assimilate integrate absorb",
        "accelerate speed hasten",
        "decelerate slow",
        "destruction destroy loss",
        "thin slim narrow",
        "heavy weighty",
        "dirty contaminated polluted",
        "clean pure",
        "pure undiluted",
        "safe secure",
        "secret hidden",
        "certain sure",
        "proportion share fraction percentage part",
        "ratio proportion",
        "sum total amount",
        "exempt excluded free",
        "deduct subtract take",
        "postal mail post",
        "bill invoice",
        "receipt voucher",
        "subsidize subsidise support fund",
        "furnish equip",
        "partner spouse",
        "holiday vacation leave",
        "absence leave",
        "illness sick ill disease sickness",
        "boss manager supervisor",
        "hour hourly",
        "quarterly quarter",
        "beginnen anfangen starten beginnt",
        "anlegen angelegt erstellen erstellt erzeugen erzeugt",
        "bestimmen festlegen festlegt legt regeln",
        "benötigen brauchen erfordern braucht benötigt",
        "erhalten bekommen kriegen",
        "verwenden benutzen nutzen einsetzen gebrauchen",
        "löschen entfernen entfernt",
        "speichern sichern aufbewahren aufbewahrt ablegen",
        "ändern anpassen verändern",
        "senden schicken übermitteln übertragen verschicken",
        "erlauben gestatten zulassen zulässig erlaubt möglich",
        "verbieten untersagen verboten untersagt",
        "manche einige",
        "gründen errichten stiften",
        "wohnung räume",
        "vermieter eigentümer",
        "mitarbeiter angestellte beschäftigte arbeitnehmer",
        "firma unternehmen gesellschaft betrieb",
        "arzt mediziner",
        "auto wagen fahrzeug",
        "bezahlen vergüten erstatten",
        "kosten preis gebühr",
        "gesamt ganz vollständig komplett",
        "normalerweise regel üblicherweise meistens gewöhnlich",
        "ende abschaffung abschluss schluss",
        "passwort kennwort",
        "anmeldung login",
        "einstellung option",
        "généralement souvent habituellement ordinairement",
        "payer verser régler acquitter",
        "locataire preneur",
        "bailleur propriétaire",
        "stocker conserver garder",
        "supprimer effacer",
        "modifier changer",
        "durer durée",
        "entreprise société",
        "employé salarié",
        "enden aufhören schließen",
        "zahlen bezahlen entrichten begleichen",
        "sein betragen beträgt",
        "refuser rejeter décliner",
        "envoyer envoyée envoyé transmettre expédier",
        "utiliser employer",
        "permettre autoriser",
        "créer fonder établir",
        "fournir offrir donner",
        "indiquer préciser spécifier",
        "augmenter croître",
        "diminuer baisser réduire",
        "débuter commencer débuteront commenceront débute commence",
        "finir terminer achever",
        "durer",
    )
]
# Each line has words of one kind, in groups. A word may only be replaced by a word of its own group.
_GROUPS = (
    "half|all every each everyone everything both whole alle allen jeder jede jedes jeden|most majority meisten|many "
    "much numerous several various multiple viele|some certain einige manche|few little wenige|none no neither nobody "
    "nothing keiner niemand",
    "must shall required need needs obliged mandatory muss müssen|may can could might kann können darf dürfen|should "
    "ought soll sollte sollen sollten",
    "always constantly|often frequently commonly usually generally typically mostly normally regularly|sometimes "
    "occasionally|rarely seldom infrequently|never",
    "first|second|third|fourth|fifth|sixth|last final",
    "once|twice|thrice",
    "before prior vor|after following nach|during während|until bis",
    "spring frühling|summer sommer|autumn herbst|winter",
    "morning|noon midday|afternoon|evening|midnight",
    "monday mon|tuesday tue|wednesday wed|thursday thu|friday fri|saturday sat|sunday sun",
    "red|blue|green|yellow|black|white|grey gray|orange|purple|pink|brown",
    "iron|steel|wood wooden|glass|stone|brick|concrete|copper|gold golden|silver|plastic|leather|cotton|paper|bronze|"
    "marble",
    "oxygen|nitrogen|hydrogen|carbon|helium|methane|ammonia|chlorine|sulfur sulphur|sodium|calcium",
    "son sons|daughter daughters|father fathers|mother mothers|brother brothers|sister sisters|uncle uncles|aunt aunts|"
    "nephew nephews|niece nieces|cousin cousins|grandfather|grandmother|husband husbands|wife wives|widow|widower",
    "breakfast|lunch|dinner|supper",
    "cat cats|dog dogs|horse horses|cow cows|pig pigs|sheep|goat goats|rat rats|mouse mice|rabbit rabbits|bird birds",
    "car cars|bus buses|train trains|plane planes aeroplane airplane aircraft|bicycle bicycles bike bikes|truck trucks|"
    "satellite satellites",
    "manager managers supervisor supervisors|employee employees worker workers staff|customer customers client clients",
    "north|south|east|west",
    "northern|southern|eastern|western",
    "bachelor|master|doctorate doctoral doctor",
    "misdemeanor misdemeanour misdemeanors|felony felonies",
    "trademark trademarks|copyright copyrights|patent patents",
    "http|https|ftp|smtp|ssh",
    "pdf|csv|xml|json|html|docx|xlsx|png|jpeg jpg|tiff|gif",
    "nightly night|daily day|weekly week|monthly month|quarterly|yearly annually annual year",
)
GROUPS: dict[str, tuple[int, int]] = {}
for _kind, _row in enumerate(_GROUPS):
    for _group, _members in enumerate(_row.split("|")):
        for _member in _members.split():
            GROUPS[_member] = (_kind, _group)
# Each line has the units of one measure, each with all its names and signs.
_UNITS = (
    "seconds second sec secs sekunde sekunden secondes|minutes minute min mins minuten|hours hour hr hrs h stunde "
    "stunden heure heures|days day tag tage tagen jour jours|weeks week woche wochen semaine semaines|months "
    "month monat monate monaten mois|years year yr yrs jahr jahre jahren an ans année années năm|decades decade|"
    "centuries century|giây|phút|giờ|ngày|tuần|tháng",
    "millimeters mm millimeter millimetre millimetres|centimeters cm centimeter centimetre centimetres|meters m meter "
    "metre metres|kilometers km kilometer kilometre kilometres|miles mile mi|feet foot ft|inches inch|yards yard",
    "m2|km2|acres acre|hectares hectare ha",
    "mg milligram milligrams|grams g gram|kg kilogram kilograms|tonnes tonne|tons ton|lb lbs|ounces ounce oz",
    "ml millilitre millilitres|litres l litre liter liters|gallons gallon",
    "bytes byte|kb|mb|gb|tb",
    "% percent prozent pourcent|€ euro euros eur|$ dollar dollars usd|£ sterling gbp pounds pound|¥ yen|crowns crown|"
    "francs franc chf|dong đồng vnd",
    "celsius|fahrenheit|kelvin",
    "watts watt w|kw|mw|gw",
)
UNITS: dict[str, tuple[int, str]] = {}
for _measure, _row in enumerate(_UNITS):
    for _names in _row.split("|"):
        for _name in _names.split():
            UNITS[_name] = (_measure, _names.split()[0])
# The size of each unit in the smallest unit of its measure, so that “24 months” equal “two years”.
UNIT_SIZES = {
    "%": 1.0,
    "seconds": 1.0,
    "minutes": 60.0,
    "hours": 3_600.0,
    "days": 86_400.0,
    "weeks": 604_800.0,
    "months": 2_629_800.0,
    "years": 31_557_600.0,
    "decades": 315_576_000.0,
    "centuries": 3_155_760_000.0,
    "giây": 1.0,
    "phút": 60.0,
    "giờ": 3_600.0,
    "ngày": 86_400.0,
    "tuần": 604_800.0,
    "tháng": 2_629_800.0,
    "millimeters": 1.0,
    "centimeters": 10.0,
    "meters": 1_000.0,
    "kilometers": 1_000_000.0,
    "m2": 1.0,
    "hectares": 10_000.0,
    "km2": 1_000_000.0,
    "mg": 1.0,
    "grams": 1_000.0,
    "kg": 1_000_000.0,
    "tonnes": 1_000_000_000.0,
    "ml": 1.0,
    "litres": 1_000.0,
    "watts": 1.0,
    "kw": 1_000.0,
    "mw": 1_000_000.0,
    "gw": 1_000_000_000.0,
}
# Vietnamese synonyms of several syllables. The first one represents the others.
_PHRASE_SYNONYMS = (
    "đa số,phần lớn,đa phần,hầu hết|bắt đầu,khai mạc,khởi đầu,mở đầu|kết thúc,bế mạc|đề nghị,đề xuất,kiến nghị|"
    "kéo dài,gia hạn|tối đa,nhiều nhất,cao nhất|tối thiểu,ít nhất,thấp nhất|nhân viên,người lao động|"
    "khách hàng,người mua|người bán,bên bán|sử dụng,dùng|thanh toán,trả tiền|giảm xuống,giảm còn|"
    "trước kia,trước đây,trước đó|hiện nay,hiện tại,bây giờ|cho phép,được phép|nghiêm cấm,cấm|"
    "thành lập,sáng lập|tổng cộng,tất cả|"
    "khoảng,chừng,xấp xỉ|chấm dứt,hủy bỏ"
)
PHRASE_SYNONYMS = {phrase: row.split(",")[0] for row in _PHRASE_SYNONYMS.split("|") for phrase in row.split(",")[1:]}
# Irregular forms, after their base form.
_IRREGULAR = (
    "transmettre transmis transmet,permettre permis permet,mettre mis met,prendre pris prend prennent,faire fait font,"
    "écrire écrit,lire lu,voir vu,recevoir reçu reçoit,tenir tenu tient,venir venu vient,devenir devenu devient,"
    "détruire détruit,conduire conduit,ouvrir ouvert,offrir offert,découvrir découvert,perdre perdu,vendre vendu,"
    "savoir su sait,vouloir voulu veut,vivre vécu vit,naître né née,mourir mort morte,"
    "be is are was were been being am,begin began begun,become became,break broke broken,bring brought,build built,buy "
    "bought,catch caught,choose chose chosen,come came,do does did done doing,draw drew drawn,drive drove driven,eat "
    "ate eaten,fall fell fallen,feed fed,feel felt,fight fought,find found,flee fled,fly flew flown,get got "
    "gotten,give gave given,go went gone goes,grow grew grown,have has had having,hear heard,hide hid hidden,hold "
    "held,keep kept,know knew known,lay laid,lead led,leave left,lend lent,lie lain lies,lose lost,make made,mean "
    "meant,meet met,pay paid,repay repaid,ride rode ridden,ring rang rung,rise rose risen,run ran,say said,see saw "
    "seen,seek sought,sell sold,send sent,shine shone,show shown,sing sang sung,sink sank sunk,sit sat,sleep "
    "slept,speak spoke spoken,spend spent,stand stood,steal stole stolen,strike struck,swim swam swum,take took "
    "taken,teach taught,tell told,think thought,throw threw thrown,understand understood,wear wore worn,win won,write "
    "wrote written,man men,woman women,child children,person people,half halves,life lives,analysis analyses,crisis "
    "crises,criterion criteria,datum data,ernennen ernennt ernannt,verlegen verlegt,beginnen beginnt begann "
    "begonnen,nehmen nimmt nahm genommen,geben gibt gab gegeben,sein ist sind war waren gewesen,haben hat hatte "
    "hatten,werden wird wurde wurden worden,schreiben schreibt schrieb geschrieben,halten hält hielt gehalten,finden "
    "findet fand gefunden,gelten gilt galt gegolten,bieten bietet bot geboten,bleiben bleibt blieb geblieben,bringen "
    "bringt brachte gebracht,denken denkt dachte gedacht,erhalten erhält erhielt,essen isst aß gegessen,fahren fährt "
    "fuhr gefahren,fallen fällt fiel gefallen,fangen fängt fing gefangen,helfen hilft half geholfen,laden lädt lud "
    "geladen,lassen lässt ließ gelassen,laufen läuft lief gelaufen,lesen liest las gelesen,rufen ruft rief "
    "gerufen,schließen schließt schloss geschlossen,sehen sieht sah gesehen,sprechen spricht sprach gesprochen,steigen "
    "steigt stieg gestiegen,sterben stirbt starb gestorben,tragen trägt trug getragen,treffen trifft traf "
    "getroffen,treten tritt trat getreten,verlieren verliert verlor verloren,wachsen wächst wuchs gewachsen,ziehen "
    "zieht zog gezogen,gehen geht ging gegangen,kommen kommt kam gekommen,stehen steht stand gestanden,liegen liegt "
    "lag gelegen"
)
BASE_FORMS = {form: row.split()[0] for row in _IRREGULAR.split(",") for form in row.split()}
