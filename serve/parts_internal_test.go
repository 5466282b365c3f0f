package serve

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox"
)

// Each process does its own work and no other, and rows are removed where they are written.
func TestPartsOfAProcess(t *testing.T) {
	for _, c := range []struct {
		set  []string
		want []oncebox.Part
	}{
		{nil, []oncebox.Part{oncebox.Relay, oncebox.Consumers, oncebox.Cleaner}},
		{[]string{API}, []oncebox.Part{oncebox.Cleaner}},
		{[]string{Relay}, []oncebox.Part{oncebox.Relay}},
		{[]string{Consumers}, []oncebox.Part{oncebox.Consumers, oncebox.Cleaner}},
		{[]string{Relay, API}, []oncebox.Part{oncebox.Relay, oncebox.Cleaner}},
	} {
		p := &process{cfg: (&Config{Parts: c.set}).WithDefaults()}
		require.Equal(t, c.want, p.parts(), c.set)
	}
}
