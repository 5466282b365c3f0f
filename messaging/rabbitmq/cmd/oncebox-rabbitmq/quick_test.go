//go:build !nightly

package main

// stop ends nothing: only the nightly tests need a server.
var stop []func() error
