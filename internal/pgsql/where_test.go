package pgsql_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pgsql"
)

func TestWhere(t *testing.T) {
	w := &pgsql.Where{}
	require.Equal(t, "true", w.String())
	w.Add("a = %s::text", "'; --")
	w.Add("b IS NULL")
	w.Add("(c, d) > (%s, %s)", 1, 2)
	require.Equal(t, "$4", w.Arg(10))
	require.Equal(t, "a = $1::text AND b IS NULL AND (c, d) > ($2, $3)", w.String())
	require.Equal(t, []any{"'; --", 1, 2, 10}, w.Args)
}
