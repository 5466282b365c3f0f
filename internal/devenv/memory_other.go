//go:build !linux

package devenv

const memoryFolder = ""

func roomInMemory() bool { return false }
