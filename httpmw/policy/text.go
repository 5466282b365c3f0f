package policy

import (
	"fmt"
	"strings"
	"time"
)

// list joins texts as "a, b and c".
func list[T any](items []T) string {
	if len(items) == 0 {
		return "none"
	}
	texts := make([]string, len(items))
	for i, item := range items {
		texts[i] = fmt.Sprint(item)
	}
	last := len(texts) - 1
	if last == 0 {
		return texts[0]
	}
	return strings.Join(texts[:last], ", ") + " and " + texts[last]
}

// size formats a number of bytes in the largest unit that divides it.
func size(n int64) string {
	const kib, mib = 1 << 10, 1 << 20
	switch {
	case n < 0:
		return "any number of bytes"
	case n > 0 && n%mib == 0:
		return fmt.Sprintf("%d MiB", n/mib)
	case n > 0 && n%kib == 0:
		return fmt.Sprintf("%d KiB", n/kib)
	}
	return fmt.Sprintf("%d bytes", n)
}

// duration formats d without the zeros at the end that time.Duration.String writes, as in 1h0m0s: clients
// read it in a sentence.
func duration(d time.Duration) string {
	text := d.String()
	if d >= time.Minute && d%time.Minute == 0 {
		text = strings.TrimSuffix(text, "0s")
	}
	if d >= time.Hour && d%time.Hour == 0 {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
