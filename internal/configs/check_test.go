package configs_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/configs"
)

func TestRefusedFieldsAreNamed(t *testing.T) {
	check := configs.CheckOf("shop: Config")
	require.NoError(t, check.Err())
	check.That(true, "Count", 3, "give a count")
	for _, kept := range []time.Duration{-1, 0, time.Hour} {
		check.AtLeast("Retention", kept, time.Hour, "give 1h or more")
	}
	check.Add(nil)
	require.NoError(t, check.Err())

	check.That(false, "Count", -2, "give a count")
	check.AtLeast("Retention", -2, time.Hour, "give 1h or more")
	check.AtLeast("Retention", time.Minute, time.Hour, "give 1h or more")
	check.Add(errors.New("another one"))
	require.EqualError(t, check.Err(), "shop: Config.Count is -2: give a count\nshop: Config.Retention is -2ns: give 1h or more\n"+
		"shop: Config.Retention is 1m0s: give 1h or more\nanother one")
}

func TestCopyOfNothingIsTheZeroConfig(t *testing.T) {
	require.Equal(t, time.Duration(0), configs.Copy[time.Duration](nil))
	given := time.Second
	copied := configs.Copy(&given)
	given = time.Minute
	require.Equal(t, time.Second, copied)
}
