"""The word lists of the shop: what it sells, and what is said about it.

A category is `name: nouns; parts`. Attributes of its own come from its parts: a part has five of the PROPERTIES,
so the hundred categories give about two thousand attributes (`saddle_material`, `battery_weight_g`, ...). A part
that several categories have, such as a battery, gives them the same attributes.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

CATEGORIES = """
mobile phones: phone, smartphone; display, battery, camera, frame, speaker, charger, sim_tray, antenna
laptops: laptop, notebook; display, keyboard, battery, hinge, touchpad, fan, charger, port_cover
headphones: headphones, headset, earbuds; ear_cushion, headband, cable, microphone, driver, case
televisions: television, TV; panel, stand, remote, tuner, backlight, bezel
cameras: camera, system camera; lens, viewfinder, sensor, shutter, grip, strap, flash
game consoles: console, handheld; controller, drive, dock, cooling, memory_card
printers: printer, plotter; cartridge, paper_tray, print_head, scanner_lid, roller
smart watches: watch, fitness tracker; watch_face, bracelet, crystal, clasp, heart_sensor
loudspeakers: loudspeaker, soundbar; woofer, tweeter, enclosure, crossover, wall_mount
tablets: tablet, e-reader; display, stylus, battery, sleeve, home_button
routers: router, access point; antenna, port_cover, power_supply, status_light, rack_ear
hard disks: hard disk, SSD; platter, enclosure, heat_sink, connector, bracket
running shoes: running shoe, trainer; sole, upper, lace, insole, heel_counter, tongue
boots: boot, hiking boot; sole, shaft, lining, toe_cap, zip, heel
jackets: jacket, parka; hood, lining, cuff, zip, pocket, collar
trousers: trousers, jeans; waistband, leg, pocket, hem, button
dresses: dress, gown; neckline, sleeve, skirt, belt, bodice
shirts: shirt, blouse; collar, cuff, button, sleeve, yoke
hats: hat, cap; brim, crown, band, peak, ear_flap
handbags: handbag, tote; handle, clasp, lining, shoulder_strap, inner_pocket
backpacks: backpack, rucksack; shoulder_strap, hip_belt, rain_cover, frame, bottle_holder
suitcases: suitcase, trolley; wheel, telescopic_handle, shell, combination_lock, divider
rings: ring, band ring; stone, setting, shank, engraving
necklaces: necklace, pendant; chain, pendant_body, clasp, stone
wrist watches: wrist watch, chronograph; dial, bezel, movement, crown_wheel, bracelet, case_back
sunglasses: sunglasses, glasses; lens, temple_arm, nose_pad, frame, hinge
sofas: sofa, couch; seat_cushion, armrest, backrest, leg, cover, bed_drawer
beds: bed, bunk bed; headboard, slat, mattress, side_rail, under_drawer
wardrobes: wardrobe, closet; door, shelf, clothes_rail, mirror, drawer
dining tables: table, dining table; table_top, leg, extension_leaf, edge, apron
office chairs: office chair, desk chair; seat, backrest, armrest, castor, gas_lift, neck_rest
lamps: lamp, floor lamp; shade, base, bulb, dimmer, cord
rugs: rug, carpet; pile, backing, fringe, border
curtains: curtain, blind; header, rod, tie_back, hem, blackout_layer
cookware: pan, pot; lid, handle, coating, bottom, rim
knives: knife, cleaver; blade, handle, bolster, sheath, tang
coffee machines: coffee machine, espresso maker; grinder, water_tank, milk_frother, drip_tray, brew_group, boiler
kettles: kettle, teapot; spout, lid, heating_element, handle, scale_filter
toasters: toaster, sandwich maker; slot, crumb_tray, lever, bun_rack
vacuum cleaners: vacuum cleaner, robot cleaner; dust_bag, hose, floor_nozzle, filter, wand, cable_reel
washing machines: washing machine, dryer; drum, door_seal, detergent_drawer, motor, drain_pump
refrigerators: refrigerator, freezer; shelf, door_seal, compressor, vegetable_box, ice_maker
dishwashers: dishwasher; basket, spray_arm, cutlery_tray, salt_container
ovens: oven, microwave; grill, turntable, rack_rail, oven_door, baking_tray
blenders: blender, mixer; jug, blade, motor, mixing_bowl, whisk
tableware: plate, bowl; glaze, rim, foot_ring, decor
glasses and cups: glass, mug; stem, rim, handle, saucer
bed linen: duvet cover, pillowcase; seam, closure, weave, filling
towels: towel, bathrobe; loop, border, weave, belt
garden tools: spade, rake; shaft, blade, handle, socket, tine
lawn mowers: mower, trimmer; cutting_deck, grass_box, wheel, motor, blade, handlebar
barbecues: barbecue, grill; grate, lid, burner, side_table, ash_pan
plant pots: plant pot, planter; saucer, drain_hole, liner, rim
garden furniture: garden chair, bench; seat, armrest, frame, cushion, foot_cap
drills: drill, screwdriver; chuck, battery, gearbox, bit, side_handle, torque_ring
saws: saw, jigsaw; blade, guide_rail, guard, base_plate, dust_port
hammers: hammer, mallet; head, shaft, face, claw
paint: paint, varnish; pigment, binder, can, tint
bath taps: tap, shower; spout, cartridge_valve, hose, lever, aerator, wall_rail
wash basins: basin, sink; drain_hole, overflow, pedestal, glaze
road bicycles: bicycle, road bike; frame, saddle, handlebar, derailleur, rim, tyre, fork, pedal
scooters: scooter, e-scooter; deck, steering_column, wheel, battery, motor, kickstand
car tyres: tyre, winter tyre; tread, sidewall, bead, valve, stud
car stereos: car stereo, navigator; display, tuner, amplifier, mounting_frame, remote
motorcycle helmets: helmet; visor, chin_strap, liner, vent, outer_shell
child seats: child seat, booster; harness, base, side_wing, cover, isofix_arm
prams: pram, buggy; wheel, canopy, basket, chassis, bumper_bar
nappies: nappy, diaper; absorbent_core, leg_cuff, tape_tab
building bricks: brick set, construction kit; brick, baseplate, figure, instruction_book
dolls: doll, puppet; hair, dress_set, eye, joint, doll_stand
board games: board game, card game; board, card, dice, token, rule_book
jigsaw puzzles: puzzle; piece, motif, puzzle_box, puzzle_mat
model railways: locomotive, train set; track, transformer, coupling, carriage, decoder
teddy bears: teddy bear, plush toy; filling, eye, fur, ribbon
guitars: guitar, bass; neck, fretboard, pickup, bridge, tuner_peg, string, body, nut
pianos: piano, keyboard; key, pedal, soundboard, stool, hammer_felt
violins: violin, viola; bow, string, chin_rest, bridge, peg
drums: drum kit, cajon; drumhead, shell, hoop, cymbal, pedal
books: book, novel; binding, paper, dust_jacket, illustration, index
films: film, series; disc, subtitle, soundtrack, disc_case
records: record, album; sleeve, pressing, label, booklet
tents: tent, tarp; pole, groundsheet, flysheet, guy_rope, peg, vestibule
sleeping bags: sleeping bag, quilt; filling, hood, zip, foot_box, stuff_sack
fishing rods: fishing rod, reel; blank, reel_seat, guide_ring, spool, tip
skis: skis, snowboard; edge, binding, ski_core, top_sheet, ski_base
footballs: football, volleyball; bladder, panel_skin, seam, valve
rackets: racket, bat; racket_head, string, grip, racket_throat, bag
yoga mats: yoga mat, gym mat; mat_surface, strap, edge, under_layer
dumbbells: dumbbell, kettlebell; weight_plate, collar, grip_bar, coating
swimwear: swimsuit, swim trunks; lining, strap, cup, drawstring
dog beds: dog bed, kennel; cushion, cover, bottom, edge_roll, roof
cat trees: cat tree, scratcher; post, platform, hammock, sisal_rope
aquariums: aquarium, terrarium; glass_pane, filter, heater, hood_light, pump
pet food: dog food, cat food; kibble, tin, protein, vitamin
perfumes: perfume, eau de toilette; flacon, atomiser, top_note, base_note
make-up: lipstick, mascara; brush, applicator, pigment, palette
shavers: shaver, trimmer; shaving_head, foil, battery, comb_attachment
toothbrushes: toothbrush; brush_head, handle, bristle, travel_case
tea: tea, herbal tea; leaf, tea_bag, tin, aroma
wine: wine, sparkling wine; grape, cork, bottle, barrel
coins: coin, medal; obverse, reverse, coin_edge, capsule
stamps: stamp, block; perforation, gum, watermark, motif
paintings: painting, print; canvas, picture_frame, stretcher, passe_partout, signature
pens: fountain pen, ballpoint; nib, cap, barrel, clip, converter
desks: desk, standing desk; table_top, leg, drawer, cable_duct, lift_motor
"""

TEXT_LISTS = {
    "colour": "black white grey silver red blue green brown beige navy gold pink yellow orange purple turquoise ivory "
    "olive bordeaux anthracite copper mint lilac cream petrol",
    "material": "steel,plastic,cotton,leather,oak,aluminium,polyester,glass,wool,beech,rubber,ceramic,silicone,bamboo,"
    "nylon,pine,brass,linen,carbon fibre,titanium,walnut,silk,porcelain,cork,concrete,marble",
    "finish": "matte,glossy,brushed,polished,lacquered,oiled,anodised,powder-coated,raw,chrome-plated,embossed,satin",
    "type": "standard,compact,professional,premium,foldable,integrated,modular,classic,reinforced,lightweight,"
    "heavy-duty,two-part,quick-release,detachable,fixed,universal",
    "shape": "round,oval,square,rectangular,curved,flat,conical,tapered,hexagonal,asymmetric,straight",
    "position": "front,rear,left,right,top,bottom,centre,side,inside",
    "grade": "A,AA,AAA,B,C,D,export,industrial,domestic,second choice",
    "care": "machine wash,hand wash,dry clean only,wipe clean,dishwasher safe,do not iron,air dry",
    "country": "China,Germany,Italy,Viet Nam,Portugal,Türkiye,India,Japan,Poland,France,Spain,United States,Bangladesh,"
    "Sweden,Czechia,South Korea,Denmark,Austria,Mexico,Netherlands,Brazil,Finland,Côte d'Ivoire,Switzerland",
    "condition": "new,used - very good,used - good,refurbished,used - acceptable,new - open box,for parts",
    "size": "M,L,S,XL,XS,XXL,one size,38,40,42,36,44,39,41,43,37,45,46,35,48",
    "style": "modern,classic,vintage,industrial,rustic,sporty,minimalist,Scandinavian,retro,elegant,bohemian,art deco",
    "department": "women,men,unisex,children,baby,girls,boys",
    "season": "all seasons,summer,winter,spring,autumn",
    "theme": "animals,flowers,space,sport,music,travel,food,history,nature,vehicles,letters,stripes,dots,holidays",
    "energy_class": "A,B,C,D,E,F,G",
    "seller": "shop,marketplace,outlet,partner store,private",
    "delivery": "parcel,freight,pick-up,express,letter",
}

FEATURES = """
waterproof wireless foldable rechargeable handmade organic recyclable dimmable scratch-resistant non-slip windproof
breathable hypoallergenic shockproof stackable quiet fast-drying magnetic childproof fair-trade
"""

BRAND_STARTS = """
Nord Alta Bel Cor Dura Elm Fjord Gala Hol Ina Jar Kel Lumi Mar Nova Oro Pel Quen Ros Sol
"""

BRAND_ENDS = """
vik dale mont wick etta line ström ara berg ova field ix home tek bury co sson ia ton works
"""

FIRST_NAMES = """
mia noah emma liam sofia lucas anna leon clara paul ida felix nora emil lena oscar julia hugo alice max greta jonas
marta theo elena adam iris simon eva david rosa ivan vera marco sara tom zoe erik olga yusuf aisha kenji
"""

NUMBERS = {  # (smallest, largest, how many, decimals): geometrically spaced, equal ones after rounding count once
    "small_mm": (1, 400, 60, 0),
    "length_cm": (5, 300, 60, 0),
    "grams": (2, 5_000, 80, 0),
    "count": (1, 24, 24, 0),
    "months": (6, 120, 12, 0),
    "watts": (3, 3_000, 60, 0),
    "litres": (0.1, 400, 60, 1),
    "rating": (1, 5, 60, 1),
    "reviews": (1, 20_000, 80, 0),
    "days": (1, 21, 21, 0),
    "euros": (2, 4_000, 700, 0),
}

# What can be said about a part: the attribute's ending and its values.
PROPERTIES = [
    ("material", "material"),
    ("colour", "colour"),
    ("finish", "finish"),
    ("type", "type"),
    ("shape", "shape"),
    ("position", "position"),
    ("grade", "grade"),
    ("brand", "brand"),
    ("country", "country"),
    ("care", "care"),
    ("width_mm", "small_mm"),
    ("thickness_mm", "small_mm"),
    ("length_cm", "length_cm"),
    ("weight_g", "grams"),
    ("count", "count"),
    ("warranty_months", "months"),
    ("replaceable", "flag"),
    ("adjustable", "flag"),
    ("included", "flag"),
]

# Attributes of any product: name, values, and the share of the products that have it. The first three are the shop's
# own and always there; then come what sellers fill in, as skewed as the paper found it (brand 31 %, country 17 %).
COMMON = [
    ("title", "title", 1.0),
    ("category", "category", 1.0),
    ("price", "euros", 1.0),
    ("brand", "brand", 0.31),
    ("country_of_manufacture", "country", 0.17),
    ("colour", "colour", 0.15),
    ("material", "material", 0.13),
    ("condition", "condition", 0.12),
    ("rating", "rating", 0.10),
    ("size", "size", 0.09),
    ("features", "features", 0.08),
    ("style", "style", 0.07),
    ("weight_g", "grams", 0.06),
    ("reviews", "reviews", 0.06),
    ("department", "department", 0.05),
    ("delivery_days", "days", 0.045),
    ("warranty_months", "months", 0.04),
    ("width_cm", "length_cm", 0.035),
    ("height_cm", "length_cm", 0.03),
    ("depth_cm", "length_cm", 0.025),
    ("power_w", "watts", 0.02),
    ("capacity_l", "litres", 0.018),
    ("season", "season", 0.016),
    ("theme", "theme", 0.014),
    ("energy_class", "energy_class", 0.012),
    ("care", "care", 0.011),
    ("seller", "seller", 0.010),
    ("delivery", "delivery", 0.009),
    ("free_returns", "flag", 0.008),
    ("handmade", "flag", 0.006),
    ("limited_edition", "flag", 0.004),
    ("personalised", "flag", 0.003),
]


class Category(NamedTuple):
    name: str
    nouns: list[str]
    attributes: list[tuple[str, str]]  # (name, values), the commonest first


def categories() -> list[Category]:
    """The categories with the attributes that only their products have."""
    found = []
    for line in CATEGORIES.strip().splitlines():
        name, _, rest = line.partition(": ")
        nouns, _, parts = rest.partition("; ")
        said = [_describe_part(part) for part in parts.split(", ")]
        # First one property of every part, then the second of every part: people name the main thing of each.
        own = [attribute for turn in zip(*said, strict=True) for attribute in turn]
        found.append(Category(name, nouns.split(", "), own))
    return found


def brands() -> list[str]:
    return [start + end for end in BRAND_ENDS.split() for start in BRAND_STARTS.split()]


def _describe_part(part: str, properties: int = 5) -> list[tuple[str, str]]:
    """A part's attributes. Which ones depends on nothing but its name: 7 and the number of PROPERTIES have no common
    divisor, so the five are different."""
    first = zlib.crc32(part.encode())
    chosen = [PROPERTIES[(first + 7 * turn) % len(PROPERTIES)] for turn in range(properties)]
    return [(f"{part}_{ending}", values) for ending, values in chosen]
