package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// file is one of n lines that declares names.
func source(lines int, names ...string) *fstest.MapFile {
	text := "package planted\n"
	for _, name := range names {
		text += "func " + name + "() {}\n"
	}
	return &fstest.MapFile{Data: []byte(text + strings.Repeat("//\n", lines-1-len(names)))}
}

// broken returns what breaks a rule in a tree of one or two packages.
func broken(t *testing.T, fsys fstest.MapFS) []finding {
	t.Helper()
	planted, err := readTree(fsys)
	require.NoError(t, err)
	return findings(planted, nil)
}

func TestPackagesThatAreTooLarge(t *testing.T) {
	atLimit, over := fstest.MapFS{}, fstest.MapFS{}
	for i := range maxFiles {
		atLimit[fmt.Sprintf("inbox/f%d.go", i)] = source(maxLines / maxFiles)
	}
	for i := range maxFiles + 1 {
		over[fmt.Sprintf("inbox/f%d.go", i)] = source(maxLines / maxFiles)
	}
	require.Empty(t, broken(t, atLimit))
	require.Equal(t, []finding{
		{ruleFiles, "inbox", 21, "inbox: files of a package: 21, at most 20"},
		{ruleLines, "inbox", 3675, "inbox: lines of a package: 3675, at most 3500"},
	}, broken(t, over))
}

func TestFilesThatAreTooLong(t *testing.T) {
	require.Empty(t, broken(t, fstest.MapFS{"uow/a.go": source(maxFileLines)}))
	require.Equal(t, []finding{{ruleFileLines, "uow/a.go", 401, "uow/a.go: lines of a file: 401, at most 400"}},
		broken(t, fstest.MapFS{"uow/a.go": source(maxFileLines + 1)}))
}

func TestPackagesThatShowTooMuch(t *testing.T) {
	names := func(of string, exported int) (all []string) {
		for i := range exported {
			all = append(all, fmt.Sprintf("In%s%d", of, i), fmt.Sprintf("hidden%s%d", of, i))
		}
		return all
	}
	require.Empty(t, broken(t, fstest.MapFS{
		"inbox/a.go": source(300, names("Inbox", maxExported)...), "outbox/a.go": source(300, names("Outbox", maxOutbox)...),
	}))
	require.Equal(t, []finding{
		{ruleExported, "inbox", 101, "inbox: exported names of a package: 101, at most 100"},
		{ruleExported, "outbox", 61, "outbox: exported names of a package: 61, at most 60"},
	}, broken(t, fstest.MapFS{
		"inbox/a.go": source(300, names("Inbox", maxExported+1)...), "outbox/a.go": source(300, names("Outbox", maxOutbox+1)...),
	}))
}

func TestWhatIsExported(t *testing.T) {
	planted, err := readTree(fstest.MapFS{"uow/a.go": {Data: []byte(`package uow
type Unit[T any] struct{}
func (u *Unit[T]) Save() {}
func (Unit[T]) add() {}
type hidden struct{}
func (hidden) Close() {}
const ( A, B = 1, 2; c = 3 )
var D = 4
`)}})
	require.NoError(t, err)
	require.Equal(t, 5, planted.packages["uow"].exported()) // Unit, Save, A, B, D
}

// Each folder of testdata breaks one rule.
func TestPlants(t *testing.T) {
	for folder, expected := range map[string][]string{
		"scattered": {"a.Store: files with methods of a type: 7, at most 6"},
		"embedding": {
			"a.Relay embeds a.Store: methods of an embedded type: 11, at most 10",
			"b.wrapped embeds a.Store: methods of an embedded type: 11, at most 10",
			"b.lease embeds b.wrapped: methods of an embedded type: 12, at most 10",
		},
		"same":  {"repeated runs of lines: 1\n\t8 lines, the same: a/a.go:5-14 and b/b.go:8-19 (\"a/a.go count\", \"b/b.go total\")"},
		"shape": {"repeated runs of lines: 1\n\t8 lines, of one shape: a/a.go:3-12 and a/a.go:15-25 (\"a/a.go count\", \"a/a.go total\")"},
	} {
		t.Run(folder, func(t *testing.T) {
			planted, err := readTree(os.DirFS("testdata/" + folder))
			require.NoError(t, err)
			var found []string
			for _, f := range findings(planted, nil) {
				found = append(found, f.text)
			}
			require.ElementsMatch(t, expected, found)
		})
	}
}

func TestTwinsThatAreExplained(t *testing.T) {
	planted, err := readTree(os.DirFS("testdata/same"))
	require.NoError(t, err)
	require.Empty(t, findings(planted, []explanation{{"b/b.go total", "a/a.go count", "a plant"}}))
	require.NotEmpty(t, findings(planted, []explanation{{"b/b.go total", "a/a.go other", "another declaration"}}))
}

func TestComplaints(t *testing.T) {
	found := []finding{{ruleFiles, "uow", 25, "uow: files of a package: 25, at most 20"}}
	require.Empty(t, complaints(found, []exception{{ruleFiles, "uow", 25}}))
	require.Empty(t, complaints(found, []exception{{ruleFiles, "uow", 26}}), "a neighbour may have made it smaller")
	require.Equal(t, []string{"uow: files of a package: 25, at most 20"}, complaints(found, nil))
	require.Equal(t, []string{"uow: files of a package: 25, at most 20\n\tit was 24, and may not grow"},
		complaints(found, []exception{{ruleFiles, "uow", 24}}))
	require.Equal(t, []string{"uow: files of a package: within the rule now, remove its exception"},
		complaints(nil, []exception{{ruleFiles, "uow", 25}}))
}
