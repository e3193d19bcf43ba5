//! Whole packets of frames: what is written comes back, and any bytes at all end well.
//!
//! Deliberately only through the public face; each frame's own edges are tested beside its code.

use crate::generators::any_sample;
use crate::mutants;
use crate::samples::{Sample, ordered, packet, walk, with_joined_padding};
use crate::soundness::assert_walk_is_sound;
use drumfire_wire::{FrameError, FrameWriter};
use proptest::prelude::*;

fn message(channel: u16, order: Option<(u64, Option<u64>)>, payload: &[u8]) -> Sample {
    Sample::Message { channel, delivery: ordered(order), payload: payload.to_vec() }
}

/// Packets as they occur: recorded once, then taken apart byte by byte and bit by bit.
fn recorded() -> Vec<Vec<u8>> {
    let input = message(1, None, &[7; 32]);
    let many: Vec<_> = (0..20).map(|n| message(2, Some((1_000 + n, Some(999 + n))), &[9; 32])).collect();
    let ack = Sample::Ack { delay_us: 5_000, ranges: vec![(900, 1_000), (700, 800), (0, 650)] };
    let full =
        Sample::Ack { delay_us: 0, ranges: (0..32).rev().map(|n| (5_000 * n, 5_000 * n + 300)).collect() };
    let close = Sample::Close { code: 1, application_code: 70_000, reason: b"going down".to_vec() };
    [
        vec![Sample::Ping, Sample::Padding(8)],
        vec![input.clone()],
        vec![message(300, Some((1 << 40, None)), b"first")],
        many.clone(),
        vec![ack.clone(), input],
        [vec![ack], many, vec![Sample::Padding(3)]].concat(),
        vec![full, Sample::Ping],
        vec![
            Sample::Fragment {
                channel: 9,
                delivery: ordered(Some((70, Some(69)))),
                number: 0,
                total_bytes: 60_000,
                offset_bytes: 40_000,
                payload: vec![5; 100],
            },
            Sample::Credit(1 << 30),
            Sample::Timestamp(1 << 40),
            message(9, Some((71, Some(70))), b"behind it"),
        ],
        vec![close],
    ]
    .iter()
    .map(|samples| packet(samples))
    .collect()
}

#[test]
fn every_prefix_of_a_recorded_packet_gives_its_first_frames() {
    for opened in recorded() {
        let (all, error) = walk(&opened);
        assert_eq!(error, None);
        for end in 0..opened.len() {
            let (mut some, error) = walk(&opened[..end]);
            assert!(matches!(error, None | Some(FrameError::Truncated)), "{error:?}");
            if let Some(Sample::Padding(_)) = some.last() {
                some.pop();
            }
            assert_eq!(some, all[..some.len()]);
            assert_walk_is_sound(&opened[..end]);
        }
    }
}

#[test]
fn every_mutant_of_a_recorded_packet_ends_well() {
    for opened in recorded() {
        mutants::of(&opened, mutants::count(), assert_walk_is_sound);
    }
}

#[test]
fn every_flipped_bit_of_a_recorded_packet_ends_well() {
    let mut flips = 0;
    for mut opened in recorded() {
        let original = walk(&opened);
        for bit in 0..8 * opened.len() {
            opened[bit / 8] ^= 1 << (bit % 8);
            assert_walk_is_sound(&opened);
            assert_ne!(walk(&opened), original, "bit {bit} means nothing");
            opened[bit / 8] ^= 1 << (bit % 8);
            flips += 1;
        }
    }
    assert!(flips > 10_000, "{flips}");
}

proptest! {
    #[test]
    fn what_is_written_comes_back(samples in prop::collection::vec(any_sample(), 0..20)) {
        let opened = packet(&samples);
        prop_assert_eq!(walk(&opened), (with_joined_padding(samples), None));
    }

    #[test]
    fn a_cut_packet_shows_nothing_that_was_not_in_it(
        samples in prop::collection::vec(any_sample(), 1..8), cut: prop::sample::Index,
    ) {
        let opened = packet(&samples);
        let (mut some, error) = walk(&opened[..cut.index(opened.len())]);
        prop_assert!(matches!(error, None | Some(FrameError::Truncated)));
        let all = with_joined_padding(samples);
        if let Some(Sample::Padding(_)) = some.last() {
            some.pop();
        }
        prop_assert_eq!(&some[..], &all[..some.len()]);
    }

    #[test]
    fn any_bytes_end_well(opened in prop::collection::vec(any::<u8>(), 0..1_500)) {
        assert_walk_is_sound(&opened);
    }

    #[test]
    fn bytes_that_look_like_frames_end_well(
        parts in prop::collection::vec(
            (prop::sample::select(vec![0x00_u8, 0x01, 0x02, 0x03, 0x05, 0x80, 0x83, 0x93, 0x88, 0x8b, 0x9b]), prop::collection::vec(0_u8..12, 0..12)),
            0..40,
        ),
    ) {
        let opened: Vec<u8> = parts.into_iter().flat_map(|(byte, rest)| [vec![byte], rest].concat()).collect();
        assert_walk_is_sound(&opened);
        // Whatever decodes can be written again and means the same.
        let (samples, _) = walk(&opened);
        prop_assert_eq!(walk(&packet(&samples)), (samples, None));
    }

    #[test]
    fn a_full_packet_takes_no_frame_in_part(samples in prop::collection::vec(any_sample(), 1..30), room in 0_usize..400) {
        let mut buffer = vec![0xaa; 500];
        let mut writer = FrameWriter::new(&mut buffer[..room]);
        let fitted: Vec<_> = samples.into_iter().filter(|sample| sample.write(&mut writer).is_ok()).collect();
        let written = writer.written_bytes();
        prop_assert_eq!(written + writer.remaining_bytes(), room);
        prop_assert!(buffer[written..].iter().all(|&byte| byte == 0xaa));
        prop_assert_eq!(walk(&buffer[..written]), (with_joined_padding(fitted), None));
    }
}
