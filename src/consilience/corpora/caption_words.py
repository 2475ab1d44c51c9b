# ruff: noqa: E501 - a field is one line, however long
"""The caption grammar's attributes, activities, relations, times and moods. Every word list is our own.

Attribute lines are ``slot: value, value; value, value``: a semicolon parts families of close values, a slash synonyms.
Activity lines are ``field: verb, verb/synonym, ...``; ``verb+particle`` and ``verb_preposition`` conjugate the verb.
"""

from __future__ import annotations

ATTRIBUTES = """
colour: red, crimson/scarlet, maroon, pink; blue, navy/dark blue, turquoise/teal, light blue; green, olive, emerald; yellow, golden, orange; white, cream, ivory; black, grey/gray, silver, charcoal; brown, tan/beige, chestnut; purple, violet, lilac
size: big/large, huge/enormous/giant, massive; small/little, tiny/miniature
extent: tall/high; low; narrow, slim; wide, broad
material: wooden, bamboo, wicker; metal, steel, copper, brass, iron, bronze, tin; plastic, rubber, vinyl; glass, crystal, porcelain, ceramic, clay; stone, marble, brick, concrete, granite; leather, suede; paper, cardboard
condition: old/aged, ancient, antique, vintage; new/brand new, modern, shiny/gleaming, polished; broken, cracked, damaged, dented, rusty, battered; dirty, dusty, muddy, grimy; clean, spotless; empty; wet/soaked, damp; dry; carved, painted, decorated/ornate, engraved
pattern: striped, chequered/plaid, tartan; spotted, polka-dot, speckled; floral, flowery; plain; embroidered, patterned, colourful/multicoloured; sequined, glittery, sparkly; faded, ragged, torn
texture: soft/fluffy, furry, fuzzy; smooth/sleek; rough, bumpy, coarse; thick, heavy; thin, light, delicate
taste: fresh, ripe, juicy; rotten, mouldy, half-eaten; sliced, chopped, peeled; hot/steaming, warm; cold/chilled, frozen; delicious/tasty, sweet, sugary; spicy, salty; homemade, crispy, creamy, sticky
drink: cold/chilled, iced; sweet, bitter; fresh, homemade; large, small
fabric: cotton, linen; woollen/wool, knitted, fleece, tweed; silk, satin, velvet, lace; denim, corduroy; nylon, polyester
age: young, youthful; old/elderly, aged, retired; middle-aged, mature
build: tall, lanky; short, petite; thin/slim/slender, skinny; muscular/strong, athletic, burly; stout/plump, chubby
male look: bearded, moustached; bald, shaven-headed; shirtless
child look: curly-haired, blond; barefoot; smiling/grinning, laughing, cheerful/happy; tearful, sad/unhappy; tired, sleepy; curious, excited; shy, timid; freckled, chubby; playful, mischievous
look: blond/fair-haired; dark-haired, brown-haired; red-haired/ginger-haired; curly-haired, long-haired; barefoot; tattooed; tanned, freckled; smiling/grinning, laughing, cheerful/happy; sad/unhappy, tearful; tired/weary, sleepy; angry/furious, frowning; surprised, shocked; nervous, frightened/scared; curious, thoughtful; proud, confident; elegant, well-dressed; shy, lonely; masked, costumed; muddy, sweaty
coat: black, dark; white, pale; brown, tan, golden; grey, silvery; spotted, striped, speckled; shaggy/furry, fluffy, woolly; sleek, glossy; muddy, wet
animal mood: playful, frisky; sleepy, drowsy; hungry, thirsty; friendly, tame; wild, fierce; curious, alert; frightened, timid; injured, stray
bloom: withered/wilted, dried; blooming/flowering, budding; leafy, lush; bare, leafless; thorny, prickly; fragrant
"""

# Which slots an entity of a domain may carry; categories override their domain.
SLOTS = {
    "person": ("age", "build", "look", "male look"),
    "person/woman": ("age", "build", "look"),
    "person/child": ("child look",),
    "animal": ("size", "coat", "animal mood"),
    "animal/wild animal": ("size", "animal mood"),
    "animal/insect": ("size", "colour"),
    "animal/reptile": ("size", "colour", "animal mood"),
    "animal/bird": ("size", "colour", "animal mood"),
    "animal/sea animal": ("size", "colour"),
    "vehicle": ("colour", "size", "condition"),
    "food": ("taste", "size"),
    "food/fruit": ("colour", "taste", "size"),
    "food/drink": ("drink",),
    "tool": ("colour", "size", "condition"),
    "thing": ("colour", "size", "condition", "material"),
    "thing/reading matter": ("size", "condition", "colour"),
    "thing/device": ("size", "condition", "colour"),
    "thing/game": ("size", "condition"),
    "instrument": ("colour", "size", "condition"),
    "furniture": ("colour", "size", "condition", "material", "extent"),
    "furniture/furnishing": ("colour", "size", "condition"),
    "furniture/bed": ("colour", "size", "condition"),
    "structure": ("colour", "size", "condition", "extent"),
    "plant": ("size", "bloom"),
    "plant/flower": ("colour", "size", "bloom"),
    "nature": ("size", "texture"),
    "clothing": ("colour", "pattern", "fabric"),
    "clothing/hat": ("colour", "pattern"),
    "clothing/accessory": ("colour",),
}

# field: who: verbs. Who is "person", "animal" or animal categories.
INTRANSITIVE = """
running: person, land: run, sprint/dash, jog, race
walking: person, land: walk, stroll/saunter, wander/roam, march, limp, trudge, tiptoe, hike, stagger
jumping: person, land: jump/leap, hop, skip, bounce, somersault
crawling: person, land: crawl, creep, climb, scramble, kneel, crouch, stretch
resting: person, land: rest/relax, sit+down, lie+down, lounge, recline, doze/nap, sleep, snore, yawn, sunbathe
standing: person: stand+still, wait, pose, lean+back, queue, loiter, linger
laughing: person: laugh/giggle/chuckle, smile/grin, cheer, applaud/clap, celebrate, joke
crying: person: cry/weep, sob, frown, scowl, sigh, pout
talking: person: talk/chat, argue/quarrel, whisper, shout/yell, gossip, debate, sing, whistle, hum, negotiate, pray, lecture
dancing: person: dance, waltz, twirl/spin, perform, juggle, breakdance, tap-dance, act, mime
training: person: exercise/work+out, practise/train, meditate, stretch+out, box, wrestle, bowl, fence
winter sports: person: ski, skate, snowboard, sledge, slide
water sports: person: swim, dive, row, sail, surf, paddle, float
street sports: person: cycle, skateboard, roller-skate
working: person: work, study, cook, dig, paint, sew, knit, weave, write, read, draw, type, sketch, think, daydream
eating out: person: eat/dine, drink, snack, feast, picnic
animal moving: land: trot, gallop, prowl, pounce, scamper/scurry, graze, bolt
animal resting: land: curl+up, snooze, bask, hide
animal noise: land: growl, howl, snarl, sniff, pant, snort
flying: bird, insect: fly, hover, flutter, glide, circle, swoop, soar
bird acting: bird: chirp/tweet, squawk, nest, preen, perch, peck, roost, waddle
insect acting: insect: buzz, crawl, feed, swarm
swimming: sea: swim, dive, float, drift, splash, glide
slithering: reptile: slither, crawl, bask, creep, hide
"""

# field: who: verbs: object categories or domains. A leading ~ means that the passive sounds odd.
TRANSITIVE = """
eating: person: eat, devour/gobble, taste, bite_into, nibble, munch, share: food/fruit, food/dish, food/cake, food/sweet
feasting: land: eat, devour, sniff, nibble, chew: food/fruit, food/vegetable
treats: dog, cat: eat, devour, steal, lick: food/dish, food/cake
drinking: person: drink, sip, gulp, pour, order: food/drink
cooking: person: cook/prepare, fry, serve, season, grill, heat: food/dish
cutting: person: slice, chop/cut, peel, wash, weigh, pick, sell, buy: food/fruit, food/vegetable
baking: person: bake, decorate/ice, frost, cut, sell: food/cake
playing music: person: play, practise, tune, carry, hold: instrument
driving: person: drive/steer, park, wash, repair/fix, tow, inspect, polish: vehicle/car, vehicle/truck
riding: person: ride, push, repair/fix, pedal, lock, steer: vehicle/bicycle
carting: person: push, pull, load, unload, repair/fix: vehicle/cart
horse riding: person: ride/mount, lead, groom/brush, saddle, feed: animal/horse
boating: person: row, steer, board, moor, paint, launch, repair: vehicle/boat
flying: person: fly/pilot, board, watch, repair, inspect: vehicle/aircraft
railway: person: board, watch, wait_for, drive, photograph: vehicle/train
petting: person: pet/stroke, feed, hold/cradle, hug/cuddle, wash/bathe, train, walk, carry, brush: animal/dog, animal/cat, animal/small animal
herding: person: feed, milk, herd/tend, lead, shear, chase: animal/farm animal
watching wildlife: person: watch/observe, photograph, film, follow, track, spot, study, sketch, point_at, look_at: animal/bird, animal/wild animal, animal/insect, animal/reptile, animal/sea animal
using tools: person: use, hold, clean, carry, sharpen, drop, borrow, pick+up, hand+over: tool/hand tool, tool/garden tool, tool/kitchen tool, tool/cleaning tool
studying: person: use, hold, examine/inspect, adjust, clean, look_at: tool/instrument of study
writing: person: hold, use, drop, buy, find: tool/stationery
reading: person: read, study/peruse, flip_through, hold, open, buy, carry, unfold: thing/reading matter
art: person: paint, admire, restore, hang, photograph, sell, look_at, draw, unveil: thing/artwork
devices: person: use, repair/fix, hold, unplug, test, look_at, switch+on, carry: thing/device
toys: person: play_with, hold, throw, chase, share, carry, pick+up, wrap: thing/toy
toy chasing: dog, cat: chase, play_with, chew, sniff, tear+apart: thing/toy
fetching: dog: fetch, carry, catch, drop, guard: thing/toy, thing/sports gear
sport: person: carry, hold, throw/toss, swing, grip, lift, clean, drop: thing/sports gear
games: person: play_with, set+up, buy, unpack: thing/game
carrying: person: carry, lift, open, empty, fill, pack, hold, drop, wash, balance, drag: thing/container
furniture: person: move, paint/varnish, build/assemble, repair/mend, polish, carry, dust, buy, sell: furniture/seat, furniture/table, furniture/storage
building: person: paint, build/construct, photograph, demolish, visit/tour, enter, leave, renovate/restore, guard, sketch, clean, repair: structure/building
street: person: paint, lean_against, walk_past, photograph, repair, touch, clean, climb, stand_beside: structure/street thing
gardening: person: water, plant, prune/trim, pick, smell, dig+up, admire, photograph, sell: plant/flower
trees: person: climb, chop+down/cut+down, plant, prune, hug, sit_under, decorate: plant/tree
animal trees: wild, small, cat: climb, sniff, scratch, hide_behind: plant/tree
nature: person: photograph, climb, touch, sit_beside, look_at, stand_beside, admire: nature/rock
helping: person: hug/embrace, help/assist, greet, thank, photograph, push, follow, chase, teach/instruct, interview, comfort/console, kiss, tickle, carry, applaud, listen_to, talk_to, wave_at, dance_with, look_at, argue_with, shake+off: person
washing clothes: person: iron, fold, wash, sew/stitch, try+on, knit, hang+up, buy, mend: clothing/top, clothing/outfit
chasing: dog, cat, wild: chase/pursue, sniff, follow, attack, watch, bark_at, play_with, stare_at: animal/dog, animal/cat, animal/bird, animal/small animal, animal/farm animal
grazing: farm, horse: follow, lick, nuzzle, sniff, watch, push: animal/farm animal, animal/horse
pecking: bird: peck_at, carry, eat, watch: animal/insect, food/fruit, food/cake
visiting flowers: insect: land_on, circle, visit, crawl_on, hover_over: plant/flower
"""

# family: relations; the landmark's domains follow.
RELATIONS = """
beside: next to/beside/by, near/close to: furniture/seat, furniture/table, structure, plant, vehicle, nature/rock
front: in front of: structure, vehicle, furniture/storage, plant/tree
behind: behind: structure, vehicle, furniture/storage, plant/tree
under: under/beneath/underneath: plant/tree
on: on/on top of: furniture/table, furniture/seat, nature/rock, furniture/bed
in: in/inside: thing/container
between: surrounded by/among: plant
across: opposite/across from: structure
"""

TIMES = """
morning: at dawn/at sunrise/at daybreak, in the morning, early in the morning
noon: at noon/at midday, at lunchtime, in the middle of the day
afternoon: in the afternoon, late in the afternoon
evening: at sunset/at dusk/at twilight, in the evening, at dinner time
night: at night/after dark, at midnight, late at night, by moonlight, under the stars
summer: in summer/on a summer's day, on a hot day, during a heatwave
winter: in winter/on a winter's day, on a cold day, on a frosty day
spring: in spring/on a spring day
autumn: in autumn/on an autumn day
rain: in the rain/on a rainy day, in a downpour, during a thunderstorm, in the drizzle
sun: in the sun/in the sunshine/on a sunny day, under a clear sky, under a blue sky
cloud: on a cloudy day/under a cloudy sky, on a foggy day/in the fog, in the mist
wind: on a windy day/in the wind, on a stormy day/in a storm, in a gale
snowfall: on a snowy day, in a blizzard/in a snowstorm, in the falling snow
holiday: on a holiday, at the weekend, during a festival, on a birthday, during a break
"""

MANNERS = """
happy: happily/cheerfully/joyfully, merrily, gleefully
calm: calmly/peacefully, quietly/silently, gently
slow: slowly, lazily, idly
fast: quickly/rapidly, hurriedly/hastily, eagerly, frantically
careful: carefully/cautiously, patiently, attentively
proud: proudly, confidently, boldly
sad: sadly, gloomily, wearily
clumsy: clumsily/awkwardly, nervously
skilled: skilfully, gracefully/elegantly, expertly
alone: alone
together: together
"""

IRREGULAR_VERBS = {
    # base: (third person, present participle, past participle), only where rules fail
    "run": ("runs", "running", "run"),
    "eat": ("eats", "eating", "eaten"),
    "bite": ("bites", "biting", "bitten"),
    "drink": ("drinks", "drinking", "drunk"),
    "drive": ("drives", "driving", "driven"),
    "ride": ("rides", "riding", "ridden"),
    "fly": ("flies", "flying", "flown"),
    "feed": ("feeds", "feeding", "fed"),
    "hold": ("holds", "holding", "held"),
    "lead": ("leads", "leading", "led"),
    "read": ("reads", "reading", "read"),
    "hang": ("hangs", "hanging", "hung"),
    "draw": ("draws", "drawing", "drawn"),
    "throw": ("throws", "throwing", "thrown"),
    "swing": ("swings", "swinging", "swung"),
    "build": ("builds", "building", "built"),
    "leave": ("leaves", "leaving", "left"),
    "cut": ("cuts", "cutting", "cut"),
    "sell": ("sells", "selling", "sold"),
    "buy": ("buys", "buying", "bought"),
    "teach": ("teaches", "teaching", "taught"),
    "sew": ("sews", "sewing", "sewn"),
    "shear": ("shears", "shearing", "shorn"),
    "catch": ("catches", "catching", "caught"),
    "set": ("sets", "setting", "set"),
    "dig": ("digs", "digging", "dug"),
    "tear": ("tears", "tearing", "torn"),
    "find": ("finds", "finding", "found"),
    "lie": ("lies", "lying", "lain"),
    "sit": ("sits", "sitting", "sat"),
    "knit": ("knits", "knitting", "knitted"),
    "shake": ("shakes", "shaking", "shaken"),
    "picnic": ("picnics", "picnicking", "picnicked"),
    "ice": ("ices", "icing", "iced"),
    "ski": ("skis", "skiing", "skied"),
    "swim": ("swims", "swimming", "swum"),
    "sing": ("sings", "singing", "sung"),
    "write": ("writes", "writing", "written"),
    "weave": ("weaves", "weaving", "woven"),
    "weep": ("weeps", "weeping", "wept"),
    "sleep": ("sleeps", "sleeping", "slept"),
    "stand": ("stands", "standing", "stood"),
    "creep": ("creeps", "creeping", "crept"),
    "think": ("thinks", "thinking", "thought"),
    "spin": ("spins", "spinning", "spun"),
    "mow": ("mows", "mowing", "mown"),
    "wave": ("waves", "waving", "waved"),
    "tow": ("tows", "towing", "towed"),
    "row": ("rows", "rowing", "rowed"),
}
DOUBLING = frozenset(["unplug", "unwrap"])
"""Verbs of several syllables that double their last consonant before -ing and -ed, as all short ones do."""

# Orders adjectives before a noun; slots with equal rank exclude each other.
SLOT_RANK = {
    "size": 0, "extent": 0, "build": 0,
    "condition": 1, "taste": 1,
    "drink": 1, "look": 1, "male look": 1, "child look": 1, "animal mood": 1, "bloom": 1, "texture": 1,
    "age": 2,
    "pattern": 3,
    "colour": 4, "coat": 4,
    "fabric": 5, "material": 5,
}  # fmt: skip
FEMININE = frozenset(
    [
        "ballerina",
        "actress",
        "waitress",
        "nun",
        "nurse",
        "milkmaid",
        "cowgirl",
        "conductress",
        "policewoman",
        "midwife",
        "cheerleader",
    ]
)
CHILD_EXCLUDED = frozenset(
    ["driving", "flying", "boating", "cooking", "using tools", "herding", "building", "drinking", "cutting", "working"]
)
"""Fields of activity that a child doesn't take part in."""

# Where activities of a field, or animals of a category, are found; any ordinary place where nothing is said.
FIELD_PLACES = {
    "winter sports": "snow", "water sports": "water sea", "street sports": "street park", "boating": "water sea",
    "flying": "travel", "railway": "travel", "driving": "street", "riding": "street park nature",
    "horse riding": "farm nature park", "cooking": "home eating", "eating out": "home eating park",
    "drinking": "home eating", "baking": "home eating", "herding": "farm", "watching wildlife": "park nature farm",
    "gardening": "park home farm", "trees": "park nature farm", "building": "street nature", "street": "street park",
    "nature": "nature water snow", "training": "sport park culture", "running": "street park nature sport",
    "art": "culture home", "studying": "work culture", "dancing": "culture street eating home",
    "working": "work home culture", "using tools": "work home farm", "washing clothes": "home shop",
}  # fmt: skip
ANIMAL_PLACES = {
    "sea animal": "sea", "farm animal": "farm nature", "wild animal": "nature", "bird": "park nature water farm",
    "dog": "home street park nature farm snow water", "cat": "home street park farm", "horse": "farm nature",
    "reptile": "nature park", "insect": "park nature farm", "small animal": "park nature farm home",
}  # fmt: skip
SHARED_PLACES = "home street park nature water farm shop eating culture work travel"
"""Where anything may happen."""

SUITABLE_RELATIONS = {
    "small": frozenset(["beside", "on", "in"]),
    "placed": frozenset(["beside", "on"]),
    "large": frozenset(["beside", "front", "behind", "between", "across"]),
    "acting": frozenset(["beside", "front", "behind", "under", "across"]),
}
"""Relations that suit a thing that fits into a container, another movable thing, a large one, and somebody who does something."""

# Fields that are closer to each other than to the rest.
FIELD_KIN = (
    "running walking jumping crawling training", "resting standing", "talking laughing dancing",
    "eating drinking cooking cutting baking feasting", "driving riding carting", "petting herding horse+riding",
    "watching+wildlife chasing grazing pecking", "animal+moving running walking jumping",
    "animal+resting resting", "reading studying writing art", "toys sport games toy+chasing fetching",
    "gardening trees nature animal+trees", "furniture building street carrying using+tools",
    "winter+sports water+sports street+sports training", "swimming water+sports",
)  # fmt: skip

LAND = ("dog", "cat", "horse", "farm animal", "wild animal", "small animal")
