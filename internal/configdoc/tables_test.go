package configdoc

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A comment that says another default than the code is found, whatever the type of the field.
func TestCommentThatIsWrong(t *testing.T) {
	other := func() {}
	for _, c := range []struct {
		value any
		right string // a statement that agrees, and the cell of the page
		cell  string
		wrong string
	}{
		{5 * time.Second, "5s", "`5s`", "6s"},
		{168 * time.Hour, "168h, which is a week", "`168h`, which is a week", "a week"},
		{time.Duration(0), "0, not at all", "`0`, not at all", "30s"},
		{5000, "5000 rows", "`5000` rows", "500 rows"},
		{1 << 20, "1 MiB", "`1048576` (1 MiB)", "1 KiB"},
		{int64(-1), "-1", "`-1`", "1"},
		{int16(0), "0", "`0`", "none"},
		{false, "false, it waits", "`false`, it waits", "true"},
		{"public", "public", "`public`", "default"},
		{"", `""`, "empty", `"x"`},
		{"", "none, it is guessed", "none, it is guessed", "public"},
		{[]string{"POST", "PATCH"}, "POST and PATCH", "`POST,PATCH` (POST and PATCH)", "POST"},
		{[]string(nil), "none", "none", "POST"},
		{Configs, "[Configs]", "`Configs`", "[Tables]"},
		{(func())(nil), "none", "none", "[Tables]"},
		{(*int)(nil), "nil, there is none", "nil, there is none", ""},
		{&other, "", "", "none"},
	} {
		if c.right != "" {
			cell, err := defaultCell(c.right, reflect.ValueOf(c.value), false)
			require.NoError(t, err, c.right)
			require.Equal(t, c.cell, cell)
		}
		_, err := defaultCell(c.wrong, reflect.ValueOf(c.value), false)
		require.Error(t, err, "%v: %s", c.value, c.wrong)
	}
	_, err := defaultCell(required, reflect.ValueOf(1), false)
	require.ErrorContains(t, err, "Required, and the code gives it 1")
}

func TestCommentIsSplit(t *testing.T) {
	for text, want := range map[string][2]string{
		"A is a.b. Default: 5s.":                    {"A is a.b.", "5s"},
		"A is\na. Default:\nPOST and PATCH.\n":      {"A is a.", "POST and PATCH"},
		"A. Default: see [a.B.C]. User comes last.": {"A. User comes last.", "see [a.B.C]"},
		"A. Required.":                              {"A.", required},
		"A. Required for events.":                   {"A. Required for events.", required},
		"A.":                                        {"A.", ""},
	} {
		meaning, stated := split(text)
		require.Equal(t, want, [2]string{meaning, stated}, text)
	}
}

func TestProseFitsIntoATable(t *testing.T) {
	require.Equal(t, "a `uow.Unit` \\| \\*, `-1` (`-1`) x-1 `ONCEBOX_A`", prose("a [uow.Unit] |\n*, -1 (-1) x-1 ONCEBOX_A"))
}

func TestCommentHasSentences(t *testing.T) {
	for text, want := range map[string][3]string{
		"Wait is how long it waits, at least 1s. Then it ends. With -1 it\nwaits for ever.": {
			"How long it waits, at least 1s.", "With `-1` it waits for ever.", "Then it ends."},
		"Wait are the names of topics, a.b for example.": {"The names of topics, a.b for example.", "", ""},
		"Wait makes it wait.":                            {"Makes it wait.", "", ""},
		"It is a. It is b. With 1 it is c.":              {"It is a.", "", "It is b. With 1 it is c."},
		"":                                               {"", "", ""},
	} {
		first, minus, rest := sentences("Wait", text)
		require.Equal(t, want, [3]string{first, minus, rest}, text)
	}
}

func TestShortCommentFitsIntoTheCell(t *testing.T) {
	long := strings.Repeat("b", longestCell-3)
	for _, c := range []struct{ before, after row }{
		{row{meaning: "A.", more: "B."}, row{meaning: "A. B."}},
		{row{meaning: "A."}, row{meaning: "A."}},
		{row{meaning: "A.", more: long}, row{meaning: "A. " + long}},
		{row{meaning: "A.", minus: "C.", more: "B."}, row{meaning: "A. B. C."}},
		{row{meaning: "A.", minus: "C.", more: long}, row{meaning: "A. C.", more: long}},
		{row{meaning: "A.", more: long + "b"}, row{meaning: "A.", more: long + "b"}},
	} {
		c.before.fit()
		require.Equal(t, c.after, c.before)
	}
}
