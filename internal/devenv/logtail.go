package devenv

import (
	"io"
	"os"
	"strings"
)

const (
	tailLines = 30
	tailBytes = 64 << 10
)

// logTail returns the last lines of a log file, for an error message.
func logTail(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return "(no log: " + err.Error() + ")"
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > tailBytes {
		if _, err := f.Seek(-tailBytes, io.SeekEnd); err != nil {
			return "(no log: " + err.Error() + ")"
		}
	}
	text, err := io.ReadAll(io.LimitReader(f, tailBytes))
	if err != nil {
		return "(no log: " + err.Error() + ")"
	}
	return lastLines(string(text))
}

func lastLines(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}
