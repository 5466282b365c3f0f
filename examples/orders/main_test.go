package main

import (
	"testing"

	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/internal/pulsartest"
)

func TestMain(m *testing.M) { pgtest.Main(m, pulsartest.Stop) }
