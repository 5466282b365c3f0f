package oncebox_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

const indexPage = "docs/README.md"

// A reader who begins at the index is at each page after two links at most.
func TestIndexReachesEachPage(t *testing.T) {
	require.Empty(t, farFromIndex(t, os.DirFS(".")), "link to these pages in %s, or in a page that it links to", indexPage)
}

func TestFarPageIsFound(t *testing.T) {
	page := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	files := fstest.MapFS{
		"docs/README.md":     page("[one](a.md) and [all](sub/README.md#x), in code: `[no](hidden.md)`"),
		"docs/a.md":          page("[on](b.md)"),
		"docs/b.md":          page("[on](c.md)"),
		"docs/c.md":          page("three links away"),
		"docs/hidden.md":     page("nobody links here"),
		"docs/sub/README.md": page("[up](../a.md), [one](one.md)"),
		"docs/sub/one.md":    page(""),
	}
	require.Equal(t, []string{"docs/c.md", "docs/hidden.md"}, farFromIndex(t, files))
}

// farFromIndex returns the pages of docs that are more than two links away from the index.
func farFromIndex(t *testing.T, files fs.FS) (far []string) {
	t.Helper()
	link := regexp.MustCompile(`\]\(([^)#:\s]+\.md)(?:#[^)]*)?\)`)
	reached, last := []string{indexPage}, []string{indexPage}
	for range 2 {
		var next []string
		for _, from := range last {
			text, err := fs.ReadFile(files, from)
			require.NoError(t, err)
			prose := codeSpans.ReplaceAllString(blocks.ReplaceAllString(string(text), ""), "")
			for _, to := range link.FindAllStringSubmatch(prose, -1) {
				next = append(next, filepath.Join(filepath.Dir(from), to[1]))
			}
		}
		reached, last = append(reached, next...), next
	}
	require.NoError(t, fs.WalkDir(files, "docs", func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" && !slices.Contains(reached, path) {
			far = append(far, path)
		}
		return err
	}))
	slices.Sort(far)
	return far
}
