package main

import (
	"bytes"
	"encoding/gob"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAPartNamesItsRoles(t *testing.T) {
	require.Equal(t, "projector", part{Projector: true}.String())
	require.Equal(t, "api+projector+consumer", part{API: true, Projector: true, Consumer: true}.String())
}

func TestAPartThatFailsSaysWho(t *testing.T) {
	var in bytes.Buffer
	require.NoError(t, gob.NewEncoder(&in).Encode(part{Floor: true, API: true, DSN: "no address"}))
	err := runPart(t.Context(), &in, io.Discard)
	require.ErrorContains(t, err, "the api: ")
}
