//go:build unix && nightly

package endurance

import (
	"cmp"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// effect is a row that a handler has left.
type effect struct {
	Key string
	N   int
}

// verdict counts what went wrong. All must be 0.
type verdict struct {
	lost     int // messages without an effect
	twice    int // effects of messages that had one
	disorder int // first effects that came before or after their turn
	details  []string
	wronged  string // the key of the first of them
}

// judge looks at the effects in their order, with how many messages each key had.
func judge(effects []effect, sent map[string]int) *verdict {
	v := &verdict{}
	seen, next := map[effect]bool{}, map[string]int{}
	for _, e := range effects {
		switch due := next[e.Key] + 1; {
		case seen[e]:
			v.notef(&v.twice, e.Key, "#%d had its effect twice", e.N)
		case e.N != due:
			v.notef(&v.disorder, e.Key, "#%d came when #%d was due", e.N, due)
		}
		seen[e] = true
		next[e.Key] = max(next[e.Key], e.N)
	}
	for key, n := range sent {
		for i := 1; i <= n; i++ {
			if !seen[effect{key, i}] {
				v.notef(&v.lost, key, "#%d had no effect", i)
			}
		}
	}
	return v
}

func (v *verdict) notef(n *int, key, format string, args ...any) {
	v.wronged = cmp.Or(v.wronged, key)
	if *n++; *n <= 5 {
		v.details = append(v.details, key+" "+fmt.Sprintf(format, args...))
	}
}

// The judge is a guard as well.
func TestJudge(t *testing.T) {
	sent := map[string]int{"a": 3, "b": 1}
	for name, c := range map[string]struct {
		effects []effect
		want    verdict
	}{
		"well":       {[]effect{{"a", 1}, {"b", 1}, {"a", 2}, {"a", 3}}, verdict{}},
		"lost":       {[]effect{{"a", 1}, {"a", 2}, {"a", 3}}, verdict{lost: 1}},
		"twice":      {[]effect{{"a", 1}, {"b", 1}, {"a", 2}, {"a", 1}, {"a", 3}}, verdict{twice: 1}},
		"swapped":    {[]effect{{"a", 1}, {"b", 1}, {"a", 3}, {"a", 2}}, verdict{disorder: 2}},
		"overtaking": {[]effect{{"a", 1}, {"b", 1}, {"a", 3}}, verdict{disorder: 1, lost: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			got := judge(c.effects, sent)
			got.details, got.wronged = nil, ""
			require.Equal(t, c.want, *got)
		})
	}
}
