module dibs/benchmarks/quamina

go 1.18

require github.com/timbray/quamina v0.3.0
