# ruff: noqa: E501 - a category is one line, however long
"""The caption grammar's things, people and places. Every word list is our own.

A category line is ``domain/category: concept, concept, ...``; a concept's synonyms follow a slash. The category's own
name is its hypernym ("dog" for the breeds). Grammar code reads these tables once, when it is first used.
"""

from __future__ import annotations

# The people's categories carry the activities they may do by profession; every person may do what people do.
PEOPLE = """
person/man: man/gentleman/guy, father/dad, grandfather/grandpa, husband, groom, businessman, widower, uncle, bachelor
person/woman: woman/lady, mother/mom, grandmother/grandma, wife, bride, businesswoman, widow, aunt, bridesmaid
person/child: boy/young boy, girl/young girl, child/kid, toddler, infant/baby, pupil/schoolchild, twin, orphan, teenager/teen
person/medic: doctor/physician, nurse, surgeon, dentist, paramedic, pharmacist, veterinarian/vet, optician, midwife, therapist
person/builder: carpenter/woodworker, plumber, electrician, bricklayer/mason, welder, roofer, painter, plasterer, builder/construction worker, architect, surveyor, engineer
person/maker: blacksmith/smith, potter, weaver, tailor, cobbler/shoemaker, jeweller, sculptor, glassblower, mechanic, carver, engraver, locksmith, upholsterer, watchmaker, bookbinder
person/cook: chef/cook, baker, butcher, waiter/server, waitress, bartender/barman, barista, fishmonger, grocer, caterer, dishwasher
person/artist: artist, photographer, dancer, ballerina, actor, actress, juggler, magician/conjurer, clown, acrobat, poet, writer/author, novelist, cartoonist, illustrator, mime, model, designer
person/musician: musician, singer/vocalist, guitarist, drummer, pianist, violinist, cellist, conductor, trumpeter, flautist, busker/street musician, bassist, saxophonist, accordionist, harpist, organist, fiddler
person/athlete: athlete/sportsman, runner/jogger, cyclist/bicyclist, swimmer, skier, skater, surfer, gymnast, boxer, wrestler, climber/mountaineer, footballer/soccer player, golfer, sprinter, snowboarder, skateboarder, diver, rower, goalkeeper/goalie, pitcher, referee/umpire, coach, fencer, archer, weightlifter, jockey, kayaker, hurdler, cheerleader
person/officer: policeman/police officer, policewoman, firefighter/fireman, soldier, sailor, guard, lifeguard, pilot, captain, ranger, detective, marine, sergeant, general, warden
person/driver: driver/motorist, trucker/truck driver, cabbie/taxi driver, courier, postman/mailman, conductress, cyclist courier, deliveryman, chauffeur, bus driver, porter, motorcyclist/biker
person/farmer: farmer, gardener, shepherd, cowboy, cowgirl, rancher, beekeeper, fisherman/angler, lumberjack/logger, florist, miller, winemaker, hunter, farmhand, stablehand, milkmaid, forester
person/scholar: teacher/schoolteacher, professor, student, scientist, librarian, researcher, chemist, astronomer, biologist, archaeologist, historian, geologist, botanist, mathematician, lecturer, tutor, philosopher, physicist, programmer
person/clerk: cashier, secretary, receptionist, lawyer, judge, banker, accountant, journalist/reporter, politician, shopkeeper/storekeeper, hairdresser, barber, cleaner/janitor, vendor/street seller, clerk, mayor, translator, editor, salesman, auctioneer, tourist/sightseer, hiker/backpacker, shopper, commuter, pedestrian, spectator/onlooker, monk, nun, priest, pilgrim, beggar, neighbour, camper, passenger/traveller, guest
"""

ANIMALS = """
animal/dog: dog/hound, puppy/pup, labrador, golden retriever, poodle, beagle, bulldog, dachshund, greyhound, terrier, collie, corgi, spaniel, husky, mastiff, dalmatian, chihuahua, pug, sheepdog, rottweiler, boxer dog, whippet, pointer, setter, schnauzer, malamute
animal/cat: cat/feline, kitten/kitty, tabby, siamese cat, persian cat, ginger cat, tomcat, calico cat, maine coon
animal/horse: horse, pony, foal, stallion, mare, donkey, mule, zebra, colt, shetland pony, palomino
animal/farm animal: cow, calf, bull, sheep, lamb, ram, goat, pig/hog, piglet, ox, llama, alpaca, camel, buffalo, yak, ewe, heifer
animal/bird: bird, sparrow, robin, pigeon/dove, seagull/gull, crow, raven, owl, eagle, hawk, falcon, parrot, parakeet, canary, swan, goose, duck, duckling, hen/chicken, rooster, turkey, peacock, flamingo, pelican, heron, stork, penguin, ostrich, woodpecker, kingfisher, swallow, magpie, hummingbird, puffin, quail, pheasant, vulture, cockatoo, toucan, finch, blackbird, starling, gosling, chick
animal/wild animal: lion, lioness, tiger, leopard, cheetah, bear/brown bear, polar bear, panda, wolf, fox, deer, stag, fawn, moose, elk, bison, elephant, rhinoceros/rhino, hippopotamus/hippo, giraffe, gorilla, chimpanzee/chimp, monkey, baboon, orangutan, lemur, kangaroo, koala, wombat, antelope, gazelle, wildebeest, hyena, jackal, boar, badger, otter, beaver, raccoon, skunk, porcupine, sloth, anteater, armadillo, meerkat, lynx, cougar, jaguar, coyote, reindeer, ibex
animal/small animal: rabbit/bunny, hare, squirrel, chipmunk, hamster, gerbil, guinea pig, mouse, rat, ferret, mole, hedgehog, bat, weasel, vole
animal/reptile: lizard, gecko, iguana, chameleon, snake/serpent, python, cobra, crocodile, alligator, turtle, tortoise, frog, toad, newt, salamander
animal/sea animal: dolphin, whale, orca, seal, sea lion, walrus, shark, octopus, crab, lobster, squid, jellyfish, starfish, stingray, fish, trout, salmon, carp, goldfish, eel, tuna, pike, catfish, shrimp, seahorse
animal/insect: butterfly, moth, bee, wasp, ant, beetle, ladybird/ladybug, dragonfly, grasshopper, cricket, spider, caterpillar, snail, worm, mantis, firefly, bumblebee, cicada, scorpion
"""

THINGS = """
vehicle/car: car/automobile, taxi/cab, convertible, limousine, jeep, van, minivan, sedan, racing car, station wagon, hatchback, police car
vehicle/truck: truck/lorry, pickup, tractor, bulldozer, fire engine/fire truck, ambulance, bus, school bus, coach, tanker, forklift, excavator, crane, trailer, caravan/camper van, tram/streetcar, steamroller, snowplough, dump truck
vehicle/bicycle: bicycle/bike, tricycle, unicycle, tandem, mountain bike, scooter, moped, motorcycle/motorbike, skateboard, racing bike, quad bike
vehicle/cart: cart, wheelchair, rickshaw, wheelbarrow, pram/stroller, wagon, sledge/sled, shopping trolley/shopping cart, handcart
vehicle/boat: boat, sailboat/yacht, canoe, kayak, rowing boat/rowboat, ferry, ship, raft, gondola, speedboat, barge, dinghy, fishing boat, tugboat, catamaran, submarine, steamboat, houseboat
vehicle/aircraft: airplane/plane, helicopter, glider, hot air balloon, jet, biplane, seaplane, airship, drone, rocket
vehicle/train: train, locomotive, freight train, steam train, monorail, cable car
food/fruit: apple, pear, banana, peach, plum, cherry, strawberry, raspberry, blueberry, orange, lemon, lime, grapefruit, melon, watermelon, pineapple, mango, papaya, kiwi, fig, apricot, pomegranate, coconut, tangerine, nectarine, blackberry, cranberry, grape
food/vegetable: carrot, potato, tomato, onion, cucumber, pepper, aubergine/eggplant, courgette/zucchini, cabbage, cauliflower, lettuce, pumpkin, radish, turnip, beetroot, leek, artichoke, mushroom, pea, bean, corncob, parsnip, olive, chilli, sprout
food/dish: pizza, sandwich, burger/hamburger, hot dog, salad, soup, stew, omelette, taco, burrito, steak, sausage, kebab, lasagna, curry, pancake, waffle, dumpling, sushi roll, pie, quiche, casserole, roast chicken, meatball, noodle dish, fried egg, toast, risotto, paella
food/cake: cake, cupcake, muffin, croissant, doughnut/donut, biscuit/cookie, tart, brownie, pastry, birthday cake, wedding cake, cheesecake, loaf, baguette, bagel, bun, pretzel, scone, roll, eclair, meringue, pudding, gingerbread man
food/sweet: lollipop, ice cream cone/ice cream, chocolate bar, candy cane, popsicle/ice lolly, milkshake, sundae, caramel, marshmallow, truffle, toffee apple
food/drink: cup of coffee, cup of tea, glass of wine, glass of water, bottle of beer, glass of milk, cocktail, smoothie, lemonade, mug of cocoa, espresso, pint of cider, glass of juice
tool/hand tool: hammer, saw, screwdriver, wrench/spanner, pair of pliers, drill, chisel, axe/hatchet, mallet, crowbar, ladder, tape measure, paintbrush, file, chainsaw, sander, anvil, clamp, plane, trowel, level, torch/flashlight, blowtorch, pulley, nail gun, soldering iron
tool/garden tool: spade/shovel, rake, hoe, pitchfork, watering can, lawnmower, hose, sickle, scythe, shears, hedge trimmer, pickaxe, plough/plow, leaf blower
tool/kitchen tool: knife, fork, spoon, whisk, ladle, spatula, rolling pin, frying pan/skillet, saucepan/pot, kettle, grater, colander, teapot, corkscrew, wok, blender, mixer, toaster, cutting board, cleaver, peeler, sieve, pepper mill
tool/cleaning tool: broom, mop, duster, sponge, bucket/pail, vacuum cleaner, scrubbing brush, dustpan, squeegee, feather duster
tool/instrument of study: microscope, telescope, magnifying glass, compass, ruler, calculator, thermometer, globe, test tube, stopwatch, protractor, binocular case, barometer, sextant
tool/stationery: pencil, pen, crayon, marker, notebook, stapler, envelope, letter, postcard, stamp, eraser, fountain pen, clipboard, quill, folder
thing/container: basket, box/crate, bottle, jar, bowl, plate/dish, cup/mug, glass, vase, tray, barrel, suitcase/trunk, backpack/rucksack, bag/sack, briefcase, wallet, purse/handbag, jug/pitcher, tin/can, thermos, goblet, wicker hamper, chest, tub, lunchbox
thing/reading matter: book, newspaper/paper, magazine, map, comic book/comic, menu, dictionary, poster, novel, cookbook, brochure/leaflet, diary, scroll, encyclopedia, songbook, atlas, textbook
thing/artwork: painting/picture, sculpture/statue, sketch/drawing, mural, portrait, pottery bowl, figurine, mosaic, tapestry, photograph/photo, bust, totem pole, wood carving, watercolour
thing/device: phone/cell phone, camera, laptop/notebook computer, computer, tablet, radio, television/TV, microphone, loudspeaker, printer, keyboard, headset, projector, video camera/camcorder, typewriter, sewing machine, joystick, record player, clock, alarm clock, game console, walkie-talkie
thing/toy: ball, kite, doll, teddy bear, balloon, frisbee, yo-yo, puzzle, toy train, toy car, marble, hula hoop, jigsaw, puppet, rattle, spinning top, rubber duck, water pistol, slinky, building block, toy robot, rocking horse, beach ball
thing/sports gear: football/soccer ball, basketball, volleyball, baseball, tennis ball, golf ball, rugby ball, baseball bat, tennis racket, hockey stick, golf club, surfboard, snowboard, ski, ice skate, bow, javelin, dumbbell, barbell, skipping rope/jump rope, paddle, oar, fishing rod, dart, boomerang, discus, trophy, hurdle, punching bag, shuttlecock, bowling ball, cricket bat
thing/game: chess set, deck of cards, board game, video game, domino set, dartboard, pool table, pinball machine, roulette wheel
instrument/string instrument: guitar, violin/fiddle, cello, harp, banjo, ukulele, mandolin, lute, double bass, electric guitar, bass guitar, sitar, zither, lyre, viola
instrument/wind instrument: flute, clarinet, trumpet, saxophone, trombone, tuba, oboe, recorder, harmonica, bagpipe, french horn, bugle, bassoon, piccolo, cornet
instrument/keyboard instrument: piano, organ, accordion, harpsichord, synthesizer, grand piano
instrument/percussion instrument: drum, tambourine, xylophone, gong, cymbal, triangle, bongo, marimba, snare drum, kettledrum, tom-tom
furniture/seat: chair, armchair, stool, bench, sofa/couch, rocking chair, deckchair, throne, pew, hammock, swing, beanbag, high chair, park bench, folding chair, swivel chair
furniture/table: table, desk, workbench, counter, picnic table, coffee table, kitchen table, dining table, dressing table, card table
furniture/bed: bed, cot/crib, mattress, bunk bed, cradle, sleeping bag, four-poster bed, futon
furniture/storage: shelf, bookcase, cupboard, wardrobe/closet, drawer, cabinet, dresser, filing cabinet, coat rack, sideboard
furniture/furnishing: lamp, mirror, rug/carpet, curtain, cushion/pillow, blanket, candle, chandelier, fireplace, candlestick, lantern, quilt, tablecloth, mat, towel
structure/building: house/home, cottage, cabin, hut, castle, church, tower, barn, lighthouse, windmill, skyscraper, temple, mosque, cathedral, palace, shed, garage, warehouse, farmhouse, greenhouse, mansion, pagoda, igloo, chapel, monastery, log cabin, pyramid, villa, bungalow, mill
structure/street thing: fence, wall, gate, fountain, bridge, lamppost/street lamp, traffic light, mailbox/letterbox, signpost/street sign, phone booth, fire hydrant, flagpole, billboard, monument, archway, bus stop, kiosk, barrier, market stall, parking meter, well, staircase, doorway, railing, bollard, scarecrow, sundial, trash can/dustbin
plant/flower: flower/blossom, rose, tulip, daisy, sunflower, lily, orchid, daffodil, poppy, carnation, iris, dandelion, violet, lavender bush, marigold, chrysanthemum, hyacinth, bluebell, snowdrop, peony, dahlia, bouquet
plant/tree: tree, oak, pine/pine tree, birch, maple, willow, palm/palm tree, elm, fir, cedar, apple tree, cherry tree, chestnut tree, poplar, redwood, beech, cypress, olive tree, sapling, tree stump, christmas tree, bamboo
plant/plant: bush/shrub, fern, cactus, vine, hedge, ivy plant, clover, thistle, reed, potted plant, seedling, bonsai, heather, log, haystack, bale of hay
nature/rock: rock/boulder, stone/pebble, cliff, crystal, sand dune, snowman, sandcastle, puddle, icicle, shell/seashell, driftwood pile, iceberg, snowball, campfire/bonfire, tent, waterfall, stream
clothing/top: shirt, t-shirt, blouse, sweater/jumper, jacket, coat/overcoat, hoodie, vest/waistcoat, cardigan, tank top, raincoat, parka, blazer, tunic, polo shirt, windbreaker, leather jacket, denim jacket, lab coat, life jacket
clothing/outfit: dress/gown, suit, uniform, kimono, apron, costume, wetsuit, swimsuit/bathing suit, skirt, kilt, robe, tracksuit, bikini, tuxedo, jumpsuit, cloak, sari, leotard, poncho, wedding dress, sundress, toga
clothing/hat: hat, cap, helmet, beret, bonnet, straw hat, cowboy hat, top hat, hood, turban, beanie, crown, hard hat, headscarf, headband, wig, bowler hat, baseball cap, sombrero, tiara, bandana, bowler
clothing/accessory: scarf, tie/necktie, bow tie, necklace, belt, backpack strap, bracelet, watch/wristwatch, mask, veil, shawl, brooch, eyepatch, badge, sash, medal, feather boa, monocle, pendant, locket
"""

PLACES = """
home: in a kitchen, in a living room, in a bedroom, in a bathroom, in a backyard/in a back garden, on a porch/on a veranda, on a balcony, in an attic, in a basement/in a cellar, in a garage, in a hallway, on a rooftop, in a dining room, in a nursery, in a driveway, on a patio, in a conservatory
street: on a street/in the street, in an alley, on a sidewalk/on the pavement, at a crossroads/at an intersection, in a parking lot/in a car park, in a town square/in a plaza, on a bridge, in a city, on a cobbled lane, in a village, at a street corner, under an overpass, in a tunnel, in a courtyard
park: in a park, in a garden, at a playground, on a lawn, in an orchard, in a meadow, at a picnic site, by a fountain, in a rose garden, in a botanical garden, beside a bandstand, near a duck pond
nature: in a forest/in the woods, on a hill/on a hillside, on a mountain, in a valley, in a desert, on a cliff, in a cave, in a jungle/in a rainforest, in a swamp, in a canyon, on a glacier, on a dirt track/on a dirt road, in a clearing, in a bamboo grove, on a heath, in tall grass, on a volcano
water: on a beach/on the shore, by a lake, by a river/on a riverbank, on a pier/on a jetty, at a harbour/in a marina, by a waterfall, on an island, at a dock, near a dam, by a canal, on a lakeside path
sea: in the sea/in the ocean, in shallow water, near a coral reef, in a lagoon, in a bay, in clear water
farm: on a farm, in a field, in a barn, in a stable, in a vineyard, in a pasture, in a cornfield, in a greenhouse, in a farmyard, in a paddock, on a ranch, beside a haystack
snow: on a snowy slope, in the snow, on a frozen lake, on an ice rink, at a ski resort, in a snowy field, on an icy path, in a snowdrift
sport: in a stadium, on a football pitch/on a soccer field, on a basketball court, in a gym, on a tennis court, on a race track, in a boxing ring, in a skate park, on a golf course, on a baseball diamond, in an arena, in a locker room, at a bowling alley, on a running track
shop: in a shop/in a store, in a market/at a market, in a supermarket, in a bakery, in a bookshop/in a bookstore, at a flower stall, in a shopping mall, in a butcher's shop, in a pharmacy, at a fairground, in a toy shop, in a boutique, at a flea market, in a hardware store
eating: in a restaurant, in a cafe/in a coffee shop, in a bar/in a pub, in a diner, at a banquet, in a canteen/in a cafeteria, at a food stall, at a barbecue, in a pizzeria, in a tavern, at a picnic
culture: in a museum, on a stage, in a theatre, in a library, in a church, in a classroom, in a concert hall, in an art gallery, at a festival, at a parade, in a cinema, in a circus tent, in a studio, at a wedding, in a ballroom, in a temple, at a carnival, in a lecture hall, in a recording studio, in a nightclub, in a zoo
work: in an office, in a workshop, in a factory, in a hospital, in a laboratory, on a construction site/on a building site, in a warehouse, in a courtroom, in a barbershop, in a clinic, in a quarry, in a newsroom, in a sawmill, in a mine, in a shipyard, in a forge
travel: at an airport, at a train station/at a railway station, on a train, on a bus, at a bus stop, in a hotel lobby, on a ship's deck, at a campsite, on a highway/on a motorway, on a platform, in a waiting room, at a gas station/at a petrol station, in a subway car, on a runway, at a border crossing
"""

IRREGULAR_PLURALS = {
    "man": "men",
    "woman": "women",
    "child": "children",
    "schoolchild": "schoolchildren",
    "person": "people",
    "wife": "wives",
    "mouse": "mice",
    "goose": "geese",
    "calf": "calves",
    "wolf": "wolves",
    "ox": "oxen",
    "sheep": "sheep",
    "deer": "deer",
    "moose": "moose",
    "elk": "elk",
    "bison": "bison",
    "reindeer": "reindeer",
    "salmon": "salmon",
    "trout": "trout",
    "squid": "squid",
    "fish": "fish",
    "goldfish": "goldfish",
    "starfish": "starfish",
    "jellyfish": "jellyfish",
    "catfish": "catfish",
    "carp": "carp",
    "pike": "pike",
    "shrimp": "shrimp",
    "tuna": "tuna",
    "aircraft": "aircraft",
    "scarf": "scarves",
    "knife": "knives",
    "shelf": "shelves",
    "loaf": "loaves",
    "leaf": "leaves",
    "potato": "potatoes",
    "tomato": "tomatoes",
    "mango": "mangoes",
    "buffalo": "buffaloes",
    "cactus": "cacti",
    "octopus": "octopuses",
    "shears": "shears",
    "binoculars": "binoculars",
    "sushi roll": "sushi rolls",
    "pair of pliers": "pairs of pliers",
    "cup of coffee": "cups of coffee",
    "cup of tea": "cups of tea",
    "glass of wine": "glasses of wine",
    "glass of water": "glasses of water",
    "glass of milk": "glasses of milk",
    "glass of juice": "glasses of juice",
    "bottle of beer": "bottles of beer",
    "mug of cocoa": "mugs of cocoa",
    "pint of cider": "pints of cider",
    "deck of cards": "decks of cards",
    "bale of hay": "bales of hay",
    "passer-by": "passers-by",
    "mantis": "mantises",
    "iris": "irises",
    "series": "series",
    "lens": "lenses",
}
MAN_ENDINGS = ("man", "woman")  # fisherman, policewoman: -men
"""Compounds in -man take -men."""
