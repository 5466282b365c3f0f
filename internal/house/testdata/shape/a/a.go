package a

func count(rows []int) int {
	n := 0
	for _, row := range rows {
		if row > 7 {
			n += row
			continue
		}
		n++
	}
	return n
}

func total(all []string) string {
	text := ""
	for _, one := range all { // the same shape
		if one > "a" {
			text += one
			continue
		}

		text++
	}
	return text
}

// These lines are of one shape: a list.
var list = map[string]int{
	"a": 1,
	"b": 2,
	"c": 3,
	"d": 4,
	"e": 5,
	"f": 6,
	"g": 7,
	"h": 8,
	"i": 9,
	"j": 10,
	"k": 11,
	"l": 12,
	"m": 13,
	"n": 14,
	"o": 15,
	"p": 16,
}
