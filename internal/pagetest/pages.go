package pagetest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Pages returns the text of each page except decisions, which tell of their time, by its name in the repository. root is the folder of the repository.
func Pages(t testing.TB, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/migrating/*.md", "docs/releases/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file) //nolint:gosec // a page of this repository
			require.NoError(t, err)
			page, err := filepath.Rel(root, file)
			require.NoError(t, err)
			all[page] = string(text)
		}
	}
	require.Greater(t, len(all), 30)
	return all
}
