"""The words of the small world, English and Chinese side by side."""

# English, plural, Chinese, Chinese measure word
OBJECTS = [
    ("box", "boxes", "盒子", "个"), ("book", "books", "书", "本"), ("cup", "cups", "杯子", "个"),
    ("lamp", "lamps", "灯", "盏"), ("key", "keys", "钥匙", "把"), ("ball", "balls", "球", "个"),
    ("hat", "hats", "帽子", "顶"), ("coin", "coins", "硬币", "枚"), ("map", "maps", "地图", "张"),
    ("bell", "bells", "铃铛", "个"), ("pen", "pens", "笔", "支"), ("bag", "bags", "书包", "个"),
    ("ring", "rings", "戒指", "枚"), ("clock", "clocks", "闹钟", "个"), ("umbrella", "umbrellas", "雨伞", "把"),
    ("scarf", "scarves", "围巾", "条"), ("drum", "drums", "鼓", "面"), ("stone", "stones", "石头", "块"),
    ("letter", "letters", "信", "封"), ("mirror", "mirrors", "镜子", "面"), ("basket", "baskets", "篮子", "个"),
    ("bottle", "bottles", "瓶子", "个"), ("spoon", "spoons", "勺子", "把"), ("chair", "chairs", "椅子", "把"),
    ("blanket", "blankets", "毯子", "条"), ("kite", "kites", "风筝", "只"), ("shell", "shells", "贝壳", "个"),
    ("candle", "candles", "蜡烛", "支"), ("ticket", "tickets", "票", "张"), ("toy", "toys", "玩具", "个"),
]

# English, with its preposition, Chinese, Chinese with 在
PLACES = [
    ("garden", "in the garden", "花园", "在花园里"), ("kitchen", "in the kitchen", "厨房", "在厨房里"),
    ("tower", "in the tower", "高塔", "在高塔里"), ("library", "in the library", "图书馆", "在图书馆里"),
    ("market", "at the market", "市场", "在市场里"), ("river", "by the river", "小河", "在小河边"),
    ("school", "at the school", "学校", "在学校里"), ("station", "at the station", "车站", "在车站里"),
    ("harbour", "at the harbour", "港口", "在港口"), ("forest", "in the forest", "森林", "在森林里"),
    ("bridge", "on the bridge", "大桥", "在大桥上"), ("castle", "in the castle", "城堡", "在城堡里"),
    ("farm", "on the farm", "农场", "在农场里"), ("museum", "in the museum", "博物馆", "在博物馆里"),
    ("park", "in the park", "公园", "在公园里"), ("bakery", "in the bakery", "面包店", "在面包店里"),
    ("hill", "on the hill", "小山", "在小山上"), ("lake", "by the lake", "湖边", "在湖边"),
    ("cave", "in the cave", "山洞", "在山洞里"), ("attic", "in the attic", "阁楼", "在阁楼里"),
    ("cellar", "in the cellar", "地下室", "在地下室里"), ("hall", "in the hall", "大厅", "在大厅里"),
    ("village", "in the village", "村子", "在村子里"), ("island", "on the island", "小岛", "在小岛上"),
]

COLOURS = [
    ("red", "红色"), ("blue", "蓝色"), ("green", "绿色"), ("yellow", "黄色"), ("white", "白色"),
    ("black", "黑色"), ("brown", "棕色"), ("orange", "橙色"), ("purple", "紫色"), ("pink", "粉色"),
    ("grey", "灰色"), ("golden", "金色"), ("silver", "银色"),
]

# English, plural, Chinese, measure, sound, Chinese sound, colour, Chinese
# colour, legs, home, Chinese home, food, Chinese food, size rank
ANIMALS = [
    ("cat", "cats", "猫", "只", "meow", "喵喵", "grey, black or orange", "灰色、黑色或橙色", 4, "in a house", "家里", "fish", "鱼", 3),
    ("dog", "dogs", "狗", "只", "woof", "汪汪", "brown, black or white", "棕色、黑色或白色", 4, "in a house", "家里", "meat", "肉", 4),
    ("cow", "cows", "牛", "头", "moo", "哞哞", "black and white", "黑白相间的", 4, "on a farm", "农场里", "grass", "草", 8),
    ("duck", "ducks", "鸭子", "只", "quack", "嘎嘎", "white or brown", "白色或棕色", 2, "by a pond", "池塘边", "seeds", "种子", 3),
    ("sheep", "sheep", "羊", "只", "baa", "咩咩", "white", "白色", 4, "on a farm", "农场里", "grass", "草", 6),
    ("pig", "pigs", "猪", "头", "oink", "哼哼", "pink", "粉色", 4, "on a farm", "农场里", "corn", "玉米", 6),
    ("horse", "horses", "马", "匹", "neigh", "咴咴", "brown", "棕色", 4, "on a farm", "农场里", "grass", "草", 8),
    ("frog", "frogs", "青蛙", "只", "ribbit", "呱呱", "green", "绿色", 4, "by a pond", "池塘边", "insects", "虫子", 2),
    ("lion", "lions", "狮子", "头", "roar", "吼吼", "yellow", "黄色", 4, "on the grassland", "草原上", "meat", "肉", 7),
    ("bee", "bees", "蜜蜂", "只", "buzz", "嗡嗡", "yellow and black", "黄黑相间的", 6, "in a hive", "蜂巢里", "nectar", "花蜜", 1),
    ("owl", "owls", "猫头鹰", "只", "hoo", "咕咕", "brown", "棕色", 2, "in the forest", "森林里", "mice", "老鼠", 3),
    ("mouse", "mice", "老鼠", "只", "squeak", "吱吱", "grey", "灰色", 4, "in a hole", "洞里", "cheese", "奶酪", 2),
    ("bear", "bears", "熊", "头", "growl", "吼吼", "brown", "棕色", 4, "in the forest", "森林里", "honey", "蜂蜜", 7),
    ("fox", "foxes", "狐狸", "只", "yip", "嗷嗷", "orange", "橙色", 4, "in the forest", "森林里", "mice", "老鼠", 4),
    ("rabbit", "rabbits", "兔子", "只", "", "", "white or brown", "白色或棕色", 4, "in a hole", "洞里", "carrots", "胡萝卜", 3),
    ("elephant", "elephants", "大象", "头", "trumpet", "呜呜", "grey", "灰色", 4, "on the grassland", "草原上", "leaves", "树叶", 9),
    ("tiger", "tigers", "老虎", "只", "roar", "吼吼", "orange and black", "橙黑相间的", 4, "in the forest", "森林里", "meat", "肉", 7),
    ("monkey", "monkeys", "猴子", "只", "ooh ooh", "吱吱", "brown", "棕色", 2, "in the trees", "树上", "bananas", "香蕉", 4),
    ("panda", "pandas", "熊猫", "只", "", "", "black and white", "黑白相间的", 4, "in the bamboo forest", "竹林里", "bamboo", "竹子", 7),
    ("fish", "fish", "鱼", "条", "", "", "silver", "银色", 0, "in the water", "水里", "small plants", "水草", 2),
    ("snake", "snakes", "蛇", "条", "hiss", "嘶嘶", "green", "绿色", 0, "in the grass", "草丛里", "mice", "老鼠", 3),
    ("penguin", "penguins", "企鹅", "只", "", "", "black and white", "黑白相间的", 2, "on the ice", "冰上", "fish", "鱼", 4),
    ("spider", "spiders", "蜘蛛", "只", "", "", "black", "黑色", 8, "in a web", "网上", "insects", "虫子", 1),
    ("ant", "ants", "蚂蚁", "只", "", "", "black", "黑色", 6, "in the ground", "地下", "crumbs", "面包屑", 1),
    ("whale", "whales", "鲸鱼", "头", "", "", "blue or grey", "蓝色或灰色", 0, "in the sea", "大海里", "small fish", "小鱼", 10),
    ("chicken", "chickens", "鸡", "只", "cluck", "咯咯", "white or brown", "白色或棕色", 2, "on a farm", "农场里", "seeds", "种子", 3),
]

# English, plural, Chinese, colour, Chinese colour, kind, Chinese kind
FOODS = [
    ("apple", "apples", "苹果", "red", "红色", "fruit", "水果"), ("banana", "bananas", "香蕉", "yellow", "黄色", "fruit", "水果"),
    ("orange", "oranges", "橙子", "orange", "橙色", "fruit", "水果"), ("lemon", "lemons", "柠檬", "yellow", "黄色", "fruit", "水果"),
    ("grape", "grapes", "葡萄", "purple", "紫色", "fruit", "水果"), ("cherry", "cherries", "樱桃", "red", "红色", "fruit", "水果"),
    ("pear", "pears", "梨", "green", "绿色", "fruit", "水果"), ("peach", "peaches", "桃子", "pink", "粉色", "fruit", "水果"),
    ("strawberry", "strawberries", "草莓", "red", "红色", "fruit", "水果"), ("plum", "plums", "李子", "purple", "紫色", "fruit", "水果"),
    ("mango", "mangoes", "芒果", "orange", "橙色", "fruit", "水果"), ("carrot", "carrots", "胡萝卜", "orange", "橙色", "vegetable", "蔬菜"),
    ("tomato", "tomatoes", "番茄", "red", "红色", "vegetable", "蔬菜"), ("cucumber", "cucumbers", "黄瓜", "green", "绿色", "vegetable", "蔬菜"),
    ("potato", "potatoes", "土豆", "brown", "棕色", "vegetable", "蔬菜"), ("onion", "onions", "洋葱", "white", "白色", "vegetable", "蔬菜"),
]

DISHES = [("bread", "面包"), ("rice", "米饭"), ("soup", "汤"), ("noodles", "面条"), ("cake", "蛋糕"), ("cheese", "奶酪"),
          ("honey", "蜂蜜"), ("milk", "牛奶"), ("tea", "茶"), ("dumplings", "饺子"), ("pizza", "比萨"), ("chocolate", "巧克力")]

JOBS = [("baker", "面包师"), ("teacher", "老师"), ("doctor", "医生"), ("farmer", "农民"), ("painter", "画家"), ("sailor", "水手"),
        ("singer", "歌手"), ("gardener", "园丁"), ("cook", "厨师"), ("writer", "作家"), ("driver", "司机"), ("nurse", "护士")]

HOBBIES = [("reading", "看书"), ("painting", "画画"), ("singing", "唱歌"), ("dancing", "跳舞"), ("swimming", "游泳"), ("running", "跑步"),
           ("cooking", "做饭"), ("fishing", "钓鱼"), ("gardening", "种花"), ("chess", "下棋"), ("football", "踢足球"), ("music", "听音乐")]

CITIES = [("France", "法国", "Paris", "巴黎"), ("China", "中国", "Beijing", "北京"), ("Japan", "日本", "Tokyo", "东京"),
          ("Germany", "德国", "Berlin", "柏林"), ("Italy", "意大利", "Rome", "罗马"), ("Spain", "西班牙", "Madrid", "马德里"),
          ("England", "英国", "London", "伦敦"), ("Russia", "俄罗斯", "Moscow", "莫斯科"), ("Egypt", "埃及", "Cairo", "开罗"),
          ("Canada", "加拿大", "Ottawa", "渥太华"), ("Greece", "希腊", "Athens", "雅典"), ("Thailand", "泰国", "Bangkok", "曼谷"),
          ("Austria", "奥地利", "Vienna", "维也纳"), ("Norway", "挪威", "Oslo", "奥斯陆"), ("the United States", "美国", "Washington", "华盛顿")]

OPPOSITES = [("big", "small", "大", "小"), ("hot", "cold", "热", "冷"), ("up", "down", "上", "下"), ("day", "night", "白天", "黑夜"),
             ("fast", "slow", "快", "慢"), ("happy", "sad", "高兴", "难过"), ("old", "young", "老", "年轻"), ("long", "short", "长", "短"),
             ("black", "white", "黑", "白"), ("open", "closed", "开", "关"), ("full", "empty", "满", "空"), ("hard", "soft", "硬", "软"),
             ("wet", "dry", "湿", "干"), ("light", "dark", "亮", "暗"), ("left", "right", "左", "右"), ("near", "far", "近", "远"),
             ("early", "late", "早", "晚"), ("rich", "poor", "富", "穷"), ("strong", "weak", "强", "弱"), ("high", "low", "高", "低"),
             ("heavy", "light", "重", "轻"), ("good", "bad", "好", "坏"), ("in", "out", "里", "外"), ("clean", "dirty", "干净", "脏"),
             ("easy", "difficult", "容易", "难"), ("loud", "quiet", "吵闹", "安静"), ("first", "last", "第一", "最后"), ("new", "old", "新", "旧")]

DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
DAYS_ZH = ["星期一", "星期二", "星期三", "星期四", "星期五", "星期六", "星期日"]
MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"]
MONTHS_ZH = ["一月", "二月", "三月", "四月", "五月", "六月", "七月", "八月", "九月", "十月", "十一月", "十二月"]
SEASONS = [("spring", "春天", "the flowers bloom", "花儿开放"), ("summer", "夏天", "it is hot", "天气很热"),
           ("autumn", "秋天", "the leaves fall", "树叶落下"), ("winter", "冬天", "it is cold and it often snows", "天气很冷，常常下雪")]

# English, what it is, Chinese, what it is in Chinese
DEFINITIONS = [
    ("clock", "a thing that shows the time", "钟", "用来看时间的东西"),
    ("teacher", "a person who helps people learn", "老师", "教别人学习的人"),
    ("doctor", "a person who helps sick people", "医生", "给人看病的人"),
    ("library", "a place with many books", "图书馆", "有很多书的地方"),
    ("river", "a long stream of water that flows to the sea", "河", "流向大海的水"),
    ("island", "a piece of land with water all around it", "岛", "四面都是水的陆地"),
    ("umbrella", "a thing that keeps you dry in the rain", "雨伞", "下雨时用来挡雨的东西"),
    ("bridge", "a way to cross a river", "桥", "让人过河的路"),
    ("mountain", "a very high piece of land", "山", "很高的地方"),
    ("school", "a place where children learn", "学校", "孩子们学习的地方"),
    ("bakery", "a shop that sells bread", "面包店", "卖面包的商店"),
    ("key", "a thing that opens a lock", "钥匙", "用来开锁的东西"),
    ("lamp", "a thing that gives light", "灯", "发光的东西"),
    ("map", "a picture that shows where places are", "地图", "告诉你地方在哪里的图"),
    ("desert", "a dry place with much sand and little rain", "沙漠", "沙子很多、雨很少的地方"),
    ("baker", "a person who makes bread", "面包师", "做面包的人"),
    ("farmer", "a person who grows food", "农民", "种粮食的人"),
    ("star", "a very big, hot ball of gas far away", "星星", "很远很远的、又大又热的气体球"),
    ("forest", "a place with many trees", "森林", "有很多树的地方"),
    ("museum", "a place that shows old and beautiful things", "博物馆", "展出古老和美丽的东西的地方"),
    ("triangle", "a shape with three sides", "三角形", "有三条边的图形"),
    ("square", "a shape with four equal sides", "正方形", "四条边一样长的图形"),
    ("circle", "a round shape", "圆", "圆圆的图形"),
    ("friend", "a person you like and trust", "朋友", "你喜欢并且相信的人"),
    ("mirror", "a piece of glass in which you see yourself", "镜子", "能看见自己的玻璃"),
    ("poem", "a short text with beautiful words", "诗", "用优美的话写成的短文"),
]

# Further words for lists, keys and translation
MORE = [("sun", "太阳"), ("moon", "月亮"), ("star", "星星"), ("rain", "雨"), ("snow", "雪"), ("wind", "风"), ("cloud", "云"),
        ("tree", "树"), ("flower", "花"), ("mountain", "山"), ("sea", "大海"), ("sky", "天空"), ("house", "房子"), ("door", "门"),
        ("window", "窗户"), ("table", "桌子"), ("bed", "床"), ("car", "汽车"), ("train", "火车"), ("ship", "船"), ("bird", "鸟"),
        ("water", "水"), ("fire", "火"), ("friend", "朋友"), ("child", "孩子"), ("hand", "手"), ("eye", "眼睛"), ("heart", "心"),
        ("music", "音乐"), ("song", "歌"), ("story", "故事"), ("dream", "梦"), ("bread", "面包"), ("milk", "牛奶"), ("tea", "茶"),
        ("rice", "米饭"), ("paper", "纸"), ("road", "路"), ("city", "城市"), ("leaf", "叶子")]

WORDS = list(dict.fromkeys([(o[0], o[2]) for o in OBJECTS] + [(a[0], a[2]) for a in ANIMALS if a[0] != "fish"]
                           + [(f[0], f[2]) for f in FOODS if f[0] != "orange"] + [("fish", "鱼")] + MORE))
WORDS_EN = list(dict.fromkeys(w for w, _ in WORDS)) + [p[0] for p in PLACES] + [c[0] for c in COLOURS[:8]]
WORDS_ZH = [z for z in dict.fromkeys([z for _, z in WORDS] + [p[2] for p in PLACES] + [c[1] for c in COLOURS[:8]])]
ZH_KEYS = [z for z in WORDS_ZH if len(z) >= 2]

NUMBER_WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
NUMBER_ZH = ["零", "一", "两", "三", "四", "五", "六", "七", "八", "九", "十", "十一", "十二"]
