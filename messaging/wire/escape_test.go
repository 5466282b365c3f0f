package wire_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/oncebox/oncebox/internal/nightly"
	"github.com/oncebox/oncebox/messaging/wire"
)

func TestEscape(t *testing.T) {
	for name, want := range map[string]string{
		"order":        "order",
		"order_placed": "order_placed",
		"orders.v1":    "orders_x2E_v1",
		"two words":    "two_x20_words",
		"*>":           "_x2A__x3E_",
		"_x2E_":        "_x5F_x2E_",
		"_x2e_":        "_x5F_x2e_",
		"tax_xml":      "tax_x5F_xml",
		"é":            "_xC3__xA9_",
	} {
		require.Equal(t, want, wire.Escape(name, ""), "%q", name)
	}
	require.Equal(t, "orders.v1", wire.Escape("orders.v1", "."))
}

func TestEscapeIsReversible(t *testing.T) {
	piece := rapid.SampledFrom([]string{"_", "x", "_x", "2", "E", "_x2E_", "x2e_", "_x2", ".", "*", "é", "\xff", "a"})
	nightly.Check(t, 1_000, 100_000, func(t *rapid.T) {
		name := strings.Join(rapid.SliceOf(piece).Draw(t, "pieces"), "")
		more := rapid.SampledFrom([]string{"", "."}).Draw(t, "more")
		escaped := wire.Escape(name, more)
		for _, c := range escaped {
			require.True(t, strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"+more, c), "%q", escaped)
		}
		require.Equal(t, name, wire.Unescape(escaped), "%q", escaped)
	})
}
