package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A file that is not built with the race detector is left out of the nightly run of all packages.
func TestWhatIsNotBuiltWithTheRaceDetectorRunsWithoutIt(t *testing.T) {
	of := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	const folder = "../../messaging/pulsar"
	left := 0
	require.NoError(t, filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil || !strings.HasPrefix(string(text), "//go:build !race\n") {
			return err
		}
		require.Equal(t, folder, filepath.Dir(path), "%s: the step runs no tests of other packages", path)
		for _, test := range of.FindAllStringSubmatch(string(text), -1) {
			require.Regexp(t, raced, test[1], path)
			left++
		}
		return nil
	}))
	require.NotZero(t, left)
}
